"""Filling a batch where a filter drops prompts; the scheduler is replaced by a table of scores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from roll_core.config.schema import RewardConfig
from roll_core.data.prompts import Prompt
from roll_core.data.sampler import PromptSampler
from roll_core.errors import RollError
from roll_core.inference import SamplingParams
from roll_core.rewards import Score, Status
from roll_core.rollout.collector import Collector
from roll_core.rollout.sample import Sample
from tests.rollout.samples import prompt, sample

DROP_EQUAL = {"query_filter_config": {"type": "std_filter", "filter_args": {"std_threshold": 0}}}


class Table:
    """A scheduler that gives the samples of a prompt the scores a function says."""

    def __init__(self, scores: Callable[[Prompt], Sequence[float]], score: Score | None = None) -> None:
        self.scores, self.score = scores, score
        self.rewards = self
        self.restarts = 0
        self.asked: list[list[str]] = []

    def take_metrics(self) -> dict[str, float]:
        return {"rewards/worker_restarts": float(self.restarts)}

    def generate(
        self, prompts: Sequence[Prompt], num_samples: int, params: Any, label: str, *, first_group: int, store: None
    ) -> list[Sample]:
        self.asked.append([each.row.id for each in prompts])
        return [
            replace(one, score=self.score or one.score)
            for position, each in enumerate(prompts)
            for score in self.scores(each)
            for one in [sample(each, first_group + position, [1], score)]
        ]


def collector(table: Table, count: int, batch_size: int, rewards: dict[str, Any]) -> Collector:
    dataset = [prompt(f"p{number}") for number in range(count)]
    sampler = PromptSampler([each.domain for each in dataset], batch_size, seed=1)
    configs = {"math_rule": RewardConfig.model_validate(rewards)}
    return Collector(table, dataset, sampler, configs, 2, SamplingParams(4))  # type: ignore[arg-type]


def test_without_a_filter_one_draw_is_enough() -> None:
    table = Table(lambda _: [1, 1])
    samples, metrics = collector(table, 20, 4, {})(1)
    assert len(samples) == 8 and len(table.asked) == 1
    assert metrics["scheduler/query_filter_count"] == 0


def test_a_dropped_prompt_is_replaced_by_another_of_its_domain() -> None:
    table = Table(lambda each: [0, 1] if int(each.row.id[1:]) % 2 else [1, 1])
    samples, metrics = collector(table, 40, 4, DROP_EQUAL)(1)
    assert len(samples) == 8 and {int(one.prompt.row.id[1:]) % 2 for one in samples} == {1}
    asked = [name for names in table.asked for name in names]
    assert len(asked) == len(set(asked)) == metrics["scheduler/collect_query_count"]
    assert metrics["scheduler/query_filter_count"] == len(asked) - 4
    assert len({one.group for one in samples}) == 4


def test_data_that_is_far_too_hard_ends_with_advice() -> None:
    table = Table(lambda _: [0, 0])
    with pytest.raises(
        RollError, match=r"^40 of 40 prompts were dropped, and the step needs 4\n  all answers wrong: 40"
    ):
        collector(table, 100, 4, DROP_EQUAL)(1)


def test_a_reward_that_never_works_is_told_apart_from_wrong_answers() -> None:
    table = Table(lambda _: [0, 0], Score(0.0, Status.ERROR, "ZeroDivisionError: division by zero"))
    with pytest.raises(RollError) as caught:
        collector(table, 100, 4, {})(1)
    assert str(caught.value).splitlines() == [
        "8 of 8 prompts were dropped, and the step needs 4",
        "  no answer could be scored: 8",
        "  16 x error: ZeroDivisionError: division by zero",
        "  try: `roll score --reward NAME FILE.jsonl` with this reward, on a few responses",
    ]
