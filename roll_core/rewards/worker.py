"""What a reward role's worker runs: a reward in a pool of killable processes. The cluster wraps it as an actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.builtin import builtin_class
from roll_core.rewards.pool import RewardPool

DEADLINE_S = 5.0
"""Seconds for one sample where nobody says."""


class RewardWorker:
    """Scores the samples of a reward domain.

    Args:
        spec: name, dotted path or (absolute) file path of the reward.
        config: keyword arguments for the reward.
        num_processes: child processes that score; by default what a built-in reward asks for, or 1.
        deadline_s: wall-clock seconds for one sample; by default what a built-in reward asks for, or 5.
        memory_limit_bytes: address space of each child; the reward's own limit where None.
        count_as_zero: train on samples that could not be graded as if they had scored 0, instead of leaving them out.
    """

    def __init__(
        self,
        spec: str,
        config: Mapping[str, Any] | None = None,
        num_processes: int | None = None,
        deadline_s: float | None = None,
        memory_limit_bytes: int | None = None,
        count_as_zero: bool = False,
    ) -> None:
        wishes = builtin_class(spec) or Reward
        self._count_as_zero = count_as_zero
        self._pool = RewardPool(
            spec,
            num_processes or wishes.num_processes,
            deadline_s or wishes.deadline_s or DEADLINE_S,
            options=config,
            memory_limit_bytes=memory_limit_bytes,
        )

    def self_test(self) -> list[str]:
        """Sentences about an install in which verdicts would be wrong; the run must not start if there are any."""
        return self._pool.self_test()

    def compute_rewards(self, samples: Sequence[RewardSample]) -> list[Score]:
        """Exactly one score per sample, in their order. May be called from several threads."""
        scores = self._pool.score_many(samples)
        return counted_as_zero(scores) if self._count_as_zero else scores

    def close(self) -> None:
        """End the child processes."""
        self._pool.close()


def counted_as_zero(scores: Sequence[Score]) -> list[Score]:
    """Scores of which those without a verdict are trained on as a reward of 0, with their status as it is."""
    return [
        one if one.status is Status.OK else replace(one, score=0.0, reward=0.0, is_counted_as_zero=True)
        for one in scores
    ]
