"""A step's training samples, taken from a flow that never stops: bounded in age, oldest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from roll_core.errors import RollError
from roll_core.rollout.collector import DRAW_LIMIT, gave_up
from roll_core.rollout.flow import RolloutFlow, check_account
from roll_core.rollout.prompt_queue import OpenPrompt
from roll_core.rollout.sample import Sample


class AsyncCollector:
    """Takes `batch_size` prompts a step from a flow.

    With ratio r, up to r batches are on their way while a step trains. No sample is trained on more than ceil(r)
    steps after the weights that sampled its first token: a step waits for the prompts that would be too old for the
    next one. `extra` more prompts may be on their way; of those, what gets too old is dropped and counted.

    Source of the bound: ROLL's asynchronous generation, `async_generation_ratio`.
    """

    def __init__(self, flow: RolloutFlow, batch_size: int, ratio: float, extra: int = 0) -> None:
        self.flow, self.batch_size, self.ratio, self.extra = flow, batch_size, ratio, extra
        self.lag = math.ceil(ratio)
        self._counted: Mapping[str, int] = {}
        flow.start()

    def __call__(self, step: int) -> tuple[list[Sample], dict[str, float]]:
        """Samples of a full batch, groups together, and how old they are.

        Raises:
            RollError: nearly everything was dropped, or whatever ended the flow.
        """
        flow, oldest = self.flow, step - 1 - self.lag
        with flow.changed:
            flow.room = math.floor(self.batch_size * (1 + self.ratio)) + self.extra
            filtered_before = flow.account.ended["filtered"]
            flow.begin()
            flow.wait_for(lambda: self._is_ready(oldest, filtered_before))
            chosen = self._choose(oldest)
            ages = [step - 1 - one.first_version for one in chosen]
            for one in chosen:
                flow.end(one, "trained")
            for one in [one for one in flow.open_prompts() if one.first_version <= oldest]:
                flow.end(one, "stale")
            flow.room -= self.batch_size
            check_account(flow)
            metrics = self._metrics(ages)
        samples = [sample for group, one in enumerate(chosen) for sample in one.samples(group)]
        return samples, metrics

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Engines are free in the block, for new weights and for validation."""
        with self.flow.paused():
            yield

    def weights_are(self, version: int) -> None:
        """Engines have new weights: what is begun from here on is sampled from them."""
        with self.flow.changed:
            self.flow.version = version

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return self.flow.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.flow.load_state_dict(state)
        self._counted = self._counts()

    def close(self) -> None:
        """End the flow."""
        self.flow.close()

    def _is_ready(self, oldest: int, filtered_before: int) -> bool:
        done = [one for one in self.flow.open_prompts() if one.is_done]
        if len(done) >= self.batch_size and not any(
            one.first_version <= oldest and not one.is_done for one in self.flow.open_prompts()
        ):
            return True
        dropped = self.flow.account.ended["filtered"] - filtered_before
        if dropped > DRAW_LIMIT * self.batch_size:
            recent: Sequence[Sequence[Sample]] = list(self.flow.dropped)
            raise RollError(gave_up(recent, len(recent) + len(done), self.batch_size))
        return False

    def _choose(self, oldest: int) -> list[OpenPrompt]:
        done = [one for one in self.flow.open_prompts() if one.is_done]
        done.sort(key=lambda one: (one.first_version > oldest, one.first_version, one.number))
        return done[: self.batch_size]

    def _counts(self) -> dict[str, int]:
        account = self.flow.account
        counts = {"drawn": account.drawn, "resumed": self.flow.resumed}
        return counts | {str(ending): count for ending, count in account.ended.items()}

    def _metrics(self, ages: Sequence[int]) -> dict[str, float]:
        flow, counts = self.flow, self._counts()
        since = {name: count - self._counted.get(name, 0) for name, count in counts.items()}
        self._counted = counts
        return {
            "scheduler/collect_query_count": float(since["drawn"]),
            "scheduler/query_filter_count": float(since["filtered"]),
            "scheduler/query_stale_count": float(since["stale"]),
            "scheduler/query_resume_count": float(since["resumed"]),
            "scheduler/query_open_count": float(len(flow.open_prompts())),
            "scheduler/off_policy_ratio": sum(ages) / len(ages),
            "scheduler/off_policy_max": float(max(ages)),
        } | flow.scheduler.rewards.take_metrics()
