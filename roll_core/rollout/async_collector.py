"""A step's rollouts, taken from a flow that never stops: bounded in age, oldest first."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic

from roll_core.errors import RollError
from roll_core.rollout.collector import DRAW_LIMIT, gave_up
from roll_core.rollout.engine_flow import EngineFlow, Open, check_account
from roll_core.rollout.flow import RolloutFlow
from roll_core.rollout.prompt_queue import OpenPrompt
from roll_core.rollout.sample import Sample


class FlowCollector(ABC, Generic[Open]):
    """Takes `batch_size` rollouts a step from a flow.

    With ratio r, up to r batches are on their way while a step trains. Nothing is trained on more than ceil(r) steps
    after the weights that sampled its first token: a step waits for the rollouts that would be too old for the next
    one. `extra` more may be on their way; of those, what gets too old is dropped and counted.

    Source of the bound: ROLL's asynchronous generation, `async_generation_ratio`.
    """

    noun = "query"
    """What a rollout is called in metrics."""
    may_leave = 0
    """Rollouts that a step need not wait for though they will be too old for the next one."""

    def __init__(self, flow: EngineFlow[Open], batch_size: int, ratio: float, extra: int = 0) -> None:
        self.flow, self.batch_size, self.ratio, self.extra = flow, batch_size, ratio, extra
        self.lag = math.ceil(ratio)
        self._counted: Mapping[str, int] = {}
        flow.start()

    def __call__(self, step: int) -> tuple[list[Any], dict[str, float]]:
        """What a full batch is made of, groups together, and how old it is.

        Raises:
            RollError: nearly everything was dropped, or whatever ended the flow.
        """
        flow, oldest = self.flow, step - 1 - self.lag
        with flow.changed:
            flow.room = math.floor(self.batch_size * (1 + self.ratio)) + self.extra
            dropped_before = self._dropped()
            flow.begin()
            flow.wait_for(lambda: self._is_ready(oldest, dropped_before))
            chosen = self._choose(oldest)
            ages = [step - 1 - version for one in chosen for version in self._versions(one)]
            if max(ages) > self.lag:
                raise RollError(
                    f"step {step} was given a rollout that is {max(ages)} steps old, of at most {self.lag}; "
                    "a fault of roll-core"
                )
            for one in chosen:
                flow.end(one, "trained")
            for one in [one for one in flow.open_rollouts() if one.first_version <= oldest]:
                flow.end(one, "stale")
            flow.room = flow.room - self.batch_size if self.ratio > 0 else 0
            self._check()
            metrics = self._metrics(ages)
        return [item for group, one in enumerate(chosen) for item in self._items(one, group)], metrics

    def _versions(self, one: Open) -> Sequence[int]:
        """The versions of weights that its age is counted from."""
        return [one.first_version]

    def _check(self) -> None:
        """Nothing was lost or counted twice. Called with the lock."""
        check_account(self.flow)

    @abstractmethod
    def _items(self, one: Open, group: int) -> Sequence[Any]:
        """What a rollout adds to the batch; `group` is its place there."""

    @abstractmethod
    def _gave_up(self) -> str:
        """Why nothing is left, where nearly everything was dropped. Called with the lock."""

    def _own_metrics(self) -> dict[str, float]:
        """Further metrics since the last step. Called with the lock."""
        return {}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Engines are free in the block, for new weights and for validation."""
        with self.flow.paused():
            yield

    def weights_are(self, version: int) -> None:
        """Engines have new weights: what is begun from here on is sampled from them."""
        self.flow.weights_are(version)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold; answers in a transport by reference, kept until the next call of this."""
        return self.flow.state_dict()

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state as JSON data: answers that it refers to are read, unless they are lost."""
        return self.flow.as_json(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.flow.load_state_dict(state)
        self._counted = self._counts()

    def close(self) -> None:
        """End the flow."""
        self.flow.close()

    def _dropped(self) -> int:
        ended = self.flow.account.ended
        return ended["filtered"] + ended.get("faulty", 0)

    def _is_ready(self, oldest: int, dropped_before: int) -> bool:
        done = [one for one in self.flow.open_rollouts() if one.is_done]
        overdue = [one for one in self.flow.open_rollouts() if one.first_version <= oldest and not one.is_done]
        if len(done) >= self.batch_size and len(overdue) <= self.may_leave:
            return True
        if self._dropped() - dropped_before > DRAW_LIMIT * self.batch_size:
            raise RollError(self._gave_up())
        return False

    def _choose(self, oldest: int) -> list[Open]:
        done = [one for one in self.flow.open_rollouts() if one.is_done]
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
            f"scheduler/collect_{self.noun}_count": float(since["drawn"]),
            f"scheduler/{self.noun}_filter_count": float(since["filtered"]),
            f"scheduler/{self.noun}_stale_count": float(since["stale"]),
            f"scheduler/{self.noun}_resume_count": float(since["resumed"]),
            f"scheduler/{self.noun}_open_count": float(len(flow.open_rollouts())),
            "scheduler/off_policy_ratio": sum(ages) / len(ages),
            "scheduler/off_policy_max": float(max(ages)),
        } | self._own_metrics()


class AsyncCollector(FlowCollector[OpenPrompt]):
    """Takes scored samples: all answers to `batch_size` prompts a step."""

    flow: RolloutFlow

    def _items(self, one: OpenPrompt, group: int) -> list[Sample]:
        return one.samples(group)

    def _gave_up(self) -> str:
        recent: Sequence[Sequence[Sample]] = list(self.flow.dropped)
        done = sum(one.is_done for one in self.flow.open_rollouts())
        return gave_up(recent, len(recent) + done, self.batch_size)

    def _own_metrics(self) -> dict[str, float]:
        return self.flow.scheduler.rewards.take_metrics()
