"""The table of pairs: every verdict is the mathematical one, and none is a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from roll_core.rewards import RewardSample, Status
from roll_core.rewards.math_rule import MathRuleReward, check_ground_truth

LINES = Path(__file__).with_name("math_pairs.txt").read_text(encoding="utf-8").splitlines()
PAIRS = [tuple(line.split(" || ")) for line in LINES if line and not line.startswith("#")]


def sample(reference: str, answer: str) -> RewardSample:
    return RewardSample("1", "", f"<think>hm</think> The answer is \\boxed{{{answer}}}.", reference)


def test_the_table_is_large_and_has_both_verdicts() -> None:
    assert len(PAIRS) >= 200
    assert {len(pair) for pair in PAIRS} == {3}
    assert all(sum(pair[0] == verdict for pair in PAIRS) >= 60 for verdict in ("right", "wrong"))


@pytest.mark.parametrize(("verdict", "reference", "answer"), PAIRS)
def test_pair(verdict: str, reference: str, answer: str) -> None:
    score = MathRuleReward().score(sample(reference, answer))
    assert (score.score, score.status) == (1.0 if verdict == "right" else 0.0, Status.OK), score.reason


@pytest.mark.parametrize(("verdict", "reference", "answer"), PAIRS)
def test_the_quick_verdict_agrees_where_there_is_one(verdict: str, reference: str, answer: str) -> None:
    score = MathRuleReward().quick_score(sample(reference, answer))
    assert score is None or (score.score, score.status) == (1.0 if verdict == "right" else 0.0, Status.OK)


@pytest.mark.parametrize("reference", sorted({pair[1] for pair in PAIRS}))
def test_references_of_the_table_pass_the_data_check_and_equal_themselves(reference: str) -> None:
    assert check_ground_truth(reference) is None
    assert MathRuleReward().score(sample(reference, reference)).score == 1.0
