"""A step's episodes, taken from a flow that never stops: whole groups, bounded in age, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.rollout.async_collector import FlowCollector
from roll_core.rollout.env_collector import gave_up
from roll_core.rollout.env_episode import Episode
from roll_core.rollout.env_flow import EpisodeFlow, check_episodes
from roll_core.rollout.env_groups import GroupOrder
from roll_core.rollout.env_queue import PlayedGroup


class AsyncEnvCollector(FlowCollector[PlayedGroup]):
    """Takes `batch_size` groups of episodes a step.

    With ratio 0, groups are begun when a step asks for them, and nothing is left running after it. `extra` groups are
    redundant: a step leaves up to so many behind that would be too old for the next one, and they are dropped.
    """

    noun = "group"
    flow: EpisodeFlow

    def __init__(self, flow: EpisodeFlow, batch_size: int, ratio: float, extra: int = 0) -> None:
        self._told: Counter[str] = Counter()
        super().__init__(flow, batch_size, ratio, extra)
        self.may_leave = extra

    def __call__(self, step: int) -> tuple[list[Any], dict[str, float]]:
        """Episodes of a full batch, groups together and in order; raises as `FlowCollector`."""
        episodes, metrics = super().__call__(step)
        if self.ratio == 0:
            self.flow.halt()
        return episodes, metrics

    @property
    def order(self) -> GroupOrder:
        """Which groups come next."""
        return self.flow.order

    def collect(self, label: str) -> tuple[list[Episode], dict[str, float]]:
        """As `EnvCollector.collect`: episodes of the weights that engines have now, whatever their version."""
        with self.flow.changed:
            self.flow.label, self.flow.version = label, 0
        return self(1)

    def _choose(self, oldest: int) -> list[PlayedGroup]:
        return sorted(super()._choose(oldest), key=lambda group: group.number)

    def _versions(self, one: PlayedGroup) -> list[int]:
        return [member.first_version for member in one.chosen()]

    def _check(self) -> None:
        check_episodes(self.flow)

    def _items(self, one: PlayedGroup, group: int) -> Sequence[Episode]:
        return [member.episode for member in one.chosen()]

    def _gave_up(self) -> str:
        counts = {name: count - self._counted.get(name, 0) for name, count in self._counts().items()}
        return gave_up(self.batch_size, counts["drawn"], counts["filtered"], counts["faulty"], self.flow.reasons)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        super().load_state_dict(state)
        self._told = self._tally()

    def _own_metrics(self) -> dict[str, float]:
        now = self._tally()
        since = {name: float(count - self._told[name]) for name, count in now.items()}
        self._told = now
        self.flow.reasons.clear()
        return since | {"scheduler/episode_open_count": float(self.flow.episodes.open_by_account())}

    def _tally(self) -> Counter[str]:
        flow = self.flow
        found = Counter({f"env/faults/{kind}": count for kind, count in flow.faults.items()})
        found["env/faults"] = flow.faults.total()
        found["env/process_restarts"] = flow.pool.restarts
        found["scheduler/group_fault_count"] = flow.account.ended["faulty"]
        found["scheduler/episode_count"] = flow.episodes.drawn
        for ending, count in flow.episodes.ended.items():
            found[f"scheduler/episode_{ending}_count"] = count
        return found
