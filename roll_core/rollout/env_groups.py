"""The order of groups of episodes: which environment comes next, and from which seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roll_core.rollout.env_episode import Plan


@dataclass(frozen=True)
class GroupStart:
    """A group of episodes: its number in the run, its environments, and the seed that all members start from."""

    group: int
    tag: str
    env_group: int
    episode: int
    seed: int

    def plan(self, member: int, attempt: int = 0) -> Plan:
        """A member's episode."""
        return Plan(self.group, member, self.tag, self.env_group, self.episode, self.seed, attempt)


class GroupOrder:
    """Groups in turn: all `env_groups` play their first episode, then all their second, and so on.

    A group's seeds follow from the run's seed, the purpose and the group, never from when or where it is played.

    Args:
        tags: of each group of environments, in their order.
        purpose: such as "train"; other purposes have other seeds.
    """

    def __init__(self, tags: Sequence[str], seed: int, purpose: str) -> None:
        self.tags, self.seed, self.purpose = list(tags), seed, purpose
        self.drawn = 0

    def next(self) -> GroupStart:
        """The next group."""
        start = self.at(self.drawn)
        self.drawn += 1
        return start

    def at(self, number: int) -> GroupStart:
        """The group of a number."""
        episode, env_group = divmod(number, len(self.tags))
        return GroupStart(number, self.tags[env_group], env_group, episode, self._group_seed(env_group) + episode)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return {"drawn_groups": self.drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.drawn = int(state["drawn_groups"])

    def _group_seed(self, env_group: int) -> int:
        key = f"{self.seed}/{self.purpose}/{self.tags[env_group]}/{env_group}"
        # Environments hand seeds to generators of numpy and others, which take 32 bits: half of them is left to count.
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") >> 1


def tags_of_groups(tags: Sequence[str], num_groups: int, partition: Sequence[int] | None) -> list[str]:
    """The tag of each group: as many in a row as `partition` says, else in equal parts, the first ones larger."""
    if partition is None:
        each, more = divmod(num_groups, len(tags))
        partition = [each + (position < more) for position in range(len(tags))]
    return [tag for tag, count in zip(tags, partition, strict=True) for _ in range(count)]
