"""What every reward must keep, as tests to run on yours.

Subclass `RewardContract` in a test file, name the reward, and give one sample that it must find right:

    class TestMyReward(RewardContract):
        reward = "my_package.rewards:MyReward"
        correct = RewardSample("1", "2+2?", "4", ground_truth="4")
        wrong = RewardSample("2", "2+2?", "5", ground_truth="4")
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from roll_core.rewards.base import RewardSample, Score, Status
from roll_core.rewards.pool import RewardPool
from roll_core.testing.contract import Contract

ODD_RESPONSES: Mapping[str, str] = {
    "empty": "",
    "blank": " \n\t ",
    "null characters": "a\x00b\x00",
    "a lone surrogate": "\ud800",
    "unbalanced braces": "{" * 2000,
    "long": "word " * 200_000,
    "many languages": "\u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \U0001f600",
    "broken LaTeX": "\\frac{1}{\\boxed{\\sqrt{",
    "a format string": "%s {0} {x} $HOME `id`",
}


class RewardContract(Contract):
    """One score per sample, a positive training reward for a correct one, and no input that ends a run."""

    reward: ClassVar[str]
    """Built-in name, dotted path or file path."""
    options: ClassVar[Mapping[str, Any]] = {}
    correct: ClassVar[RewardSample]
    wrong: ClassVar[RewardSample | None] = None
    deadline_s: ClassVar[float] = 10.0

    @pytest.fixture(scope="class")
    @classmethod
    def pool(cls) -> Iterator[RewardPool]:
        """A pool of one process, shared by the tests of a class."""
        with RewardPool(cls.reward, 1, cls.deadline_s, options=cls.options) as pool:
            yield pool

    def test_self_test_finds_no_problem(self, pool: RewardPool) -> None:
        assert pool.self_test() == []

    def test_a_correct_sample_gets_a_positive_training_reward(self, pool: RewardPool) -> None:
        score = _only(pool, self.correct)
        assert score.status is Status.OK, score.reason
        assert score.score > 0.0
        assert (score.score if score.reward is None else score.reward) > 0.0

    def test_a_wrong_sample_gets_less_than_a_correct_one(self, pool: RewardPool) -> None:
        if self.wrong is None:
            pytest.skip("the contract was given no wrong sample")
        right, wrong = _only(pool, self.correct), _only(pool, self.wrong)
        assert wrong.status is Status.OK, wrong.reason
        assert _training_reward(wrong) < _training_reward(right)
        assert wrong.score < right.score

    def test_every_sample_gets_exactly_one_score_in_order(self, pool: RewardPool) -> None:
        samples = [self.correct, replace(self.correct, response=""), self.correct] * 5
        alone = [_only(pool, sample) for sample in samples[:3]]
        assert pool.score_many(samples) == alone * 5
        assert pool.score_many([]) == []

    def test_scores_do_not_depend_on_the_thread(self, pool: RewardPool) -> None:
        found: list[Score] = []
        thread = threading.Thread(target=lambda: found.append(_only(pool, self.correct)))
        thread.start()
        thread.join()
        assert found == [_only(pool, self.correct)]

    @pytest.mark.parametrize("name", ODD_RESPONSES)
    def test_odd_responses_get_a_score(self, pool: RewardPool, name: str) -> None:
        score = _only(pool, replace(self.correct, response=ODD_RESPONSES[name]))
        assert score.status in (Status.OK, Status.COULD_NOT_GRADE), score.reason
        assert math.isfinite(score.score) and 0.0 <= score.score <= 1.0

    def test_a_row_without_other_columns_gets_a_score(self, pool: RewardPool) -> None:
        score = _only(pool, replace(self.correct, ground_truth="", tag="", fields={}))
        assert score.status in (Status.OK, Status.COULD_NOT_GRADE), score.reason


def _only(pool: RewardPool, sample: RewardSample) -> Score:
    (score,) = pool.score_many([sample])
    return score


def _training_reward(score: Score) -> float:
    return score.score if score.reward is None else score.reward
