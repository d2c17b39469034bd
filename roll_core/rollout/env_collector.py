"""A step's episodes: whole groups, in their order, with those replaced that faults or a filter took away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import CheckpointError, RollError
from roll_core.inference import SamplingParams
from roll_core.rollout.collector import DRAW_LIMIT
from roll_core.rollout.env_episode import Episode, Plan
from roll_core.rollout.env_groups import GroupOrder, GroupStart
from roll_core.rollout.env_rollout import EnvRollout

ATTEMPTS = 3
"""How often a member's episode is played before its group is given up."""

GroupFilter = Callable[[GroupStart, Sequence[Episode]], bool]
"""Whether a whole group is dropped."""


@dataclass
class OpenGroup:
    """A group on its way: episodes by member, those with faults left out."""

    start: GroupStart
    size: int
    num_members: int
    done: dict[int, Episode] = field(default_factory=dict)
    attempts: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether enough of its episodes have ended."""
        return len(self.done) >= self.size

    def plans(self) -> list[Plan]:
        """What is to be played next: all members, then those that are missing."""
        missing = [member for member in range(self.num_members) if member not in self.done]
        needed = missing if self.attempts == 0 else missing[: self.size - len(self.done)]
        return [self.start.plan(member, self.attempts) for member in needed]

    def episodes(self) -> list[Episode]:
        """The first members that ended well."""
        return [self.done[member] for member in sorted(self.done)[: self.size]]


class EnvCollector:
    """Collects groups until a step has enough.

    Args:
        num_groups: groups of a step.
        group_size: episodes of a group.
        redundancy: further episodes of each group, which stand in for those with faults.
        at_once: groups that are played at the same time.
        drops: whether a whole group is dropped, for another one.
    """

    def __init__(
        self,
        rollout: EnvRollout,
        order: GroupOrder,
        params: SamplingParams,
        *,
        num_groups: int,
        group_size: int,
        redundancy: int = 0,
        at_once: int = 0,
        drops: GroupFilter | None = None,
    ) -> None:
        self.rollout, self.order, self.params = rollout, order, params
        self.num_groups, self.group_size, self.redundancy = num_groups, group_size, redundancy
        self.at_once, self.drops = at_once or num_groups, drops

    def __call__(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        """Episodes of a full step, groups together, and what became of the others.

        Raises:
            RollError: nearly every group had faults or was dropped; says what the faults were.
        """
        return self.collect(f"train/{step}")

    def collect(self, label: str) -> tuple[list[Episode], dict[str, float]]:
        """The same for any purpose; `label` makes requests' names and seeds unique."""
        faults: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        kept: list[OpenGroup] = []
        running: list[OpenGroup] = []
        drawn = filtered = given_up = 0
        restarts = self.rollout.pool.restarts
        while len(kept) < self.num_groups:
            while len(kept) + len(running) < self.num_groups:
                running.append(OpenGroup(self.order.next(), self.group_size, self.group_size + self.redundancy))
                drawn += 1
            playing = running[: self.at_once]
            self._play(playing, label, faults, reasons)
            for group in playing:
                if group.is_whole:
                    is_dropped = self.drops is not None and self.drops(group.start, group.episodes())
                    filtered += is_dropped
                    kept += [] if is_dropped else [group]
                elif group.attempts >= ATTEMPTS:
                    given_up += 1
                else:
                    continue
                running.remove(group)
            if drawn > DRAW_LIMIT * self.num_groups:
                raise RollError(gave_up(self.num_groups, drawn, filtered, given_up, reasons))
        kept.sort(key=lambda group: group.start.group)
        metrics = {f"env/faults/{kind}": float(count) for kind, count in faults.items()}
        metrics |= {
            "env/faults": float(faults.total()),
            "env/process_restarts": float(self.rollout.pool.restarts - restarts),
            "scheduler/collect_group_count": float(drawn),
            "scheduler/group_filter_count": float(filtered),
            "scheduler/group_fault_count": float(given_up),
        }
        return [episode for group in kept for episode in group.episodes()], metrics

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing runs between calls, so there is nothing to do for it."""
        yield

    def weights_are(self, version: int) -> None:
        """Engines have new weights: of no interest to episodes that are all played after them."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold: where in the order of groups the run is."""
        return self.order.state_dict()

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state, which is JSON data as it is."""
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: it was made by a run that plays episodes while it trains.
        """
        if "open" in state:
            raise CheckpointError(
                f"the checkpoint holds {len(state['open'])} groups of episodes that were on their way when it was made"
                "\n  try: async_generation_ratio as in the run that made it"
            )
        self.order.load_state_dict(state)

    def close(self) -> None:
        """End the environments' processes."""
        self.rollout.pool.close()

    def _play(self, groups: Sequence[OpenGroup], label: str, faults: Counter[str], reasons: Counter[str]) -> None:
        by_number = {group.start.group: group for group in groups}
        plans = [plan for group in groups for plan in group.plans()]
        for group in groups:
            group.attempts += 1
        for episode in self.rollout.play(plans, self.params, label):
            if episode.fault is None:
                by_number[episode.plan.group].done[episode.plan.member] = episode
            else:
                faults[episode.fault.kind] += 1
                reasons[f"{episode.plan.tag}: {episode.fault.kind}: {episode.fault.reason}"] += 1


def gave_up(needed: int, drawn: int, filtered: int, given_up: int, reasons: Counter[str], shown: int = 3) -> str:
    """Why a step cannot be filled, and the most frequent faults."""
    lines = [
        f"of {drawn} groups of episodes {given_up} were given up for faults of their environments and {filtered} "
        f"dropped by the filter; the step needs {needed}",
        *(f"  {count} x {reason}" for reason, count in reasons.most_common(shown)),
        "  try: the environment by itself, with roll_core.envs.make_environment, or a milder group_filter_cls",
    ]
    return "\n".join(lines)
