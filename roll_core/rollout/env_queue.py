"""Groups of episodes on their way: played in part, and every episode of them accounted for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roll_core.inference import GenerationRequest
from roll_core.rollout.env_episode import Episode
from roll_core.rollout.env_groups import GroupStart
from roll_core.rollout.environments import Act, Begin
from roll_core.rollout.prompt_queue import Answer

NOT_YET = sys.maxsize
"""In place of a version, where no token was asked for yet."""

EpisodeEnding = Literal["trained", "filtered", "stale", "faulty", "spare", "fault"]
"""How an episode leaves: with its group, as one more than the group needs, or for a fault of its environment."""


@dataclass(eq=False)
class Member:
    """A place in a group, and the episode that is played in it now.

    Args:
        slot: of its environment; None where it needs none, or no more.
        first_version: of the weights that its first token is asked of.
        request: what the model was asked last; None while it is the environment's turn, and after the end.
        answer: what the model has answered so far.
        request_id: the name of what runs on an engine now; "" where nothing does.
        is_lost: its environment is being brought back to where it was.
    """

    group: PlayedGroup
    episode: Episode
    slot: int | None = None
    first_version: int = NOT_YET
    request: GenerationRequest | None = None
    answer: Answer = field(default_factory=Answer)
    request_id: str = ""
    is_lost: bool = False

    @property
    def is_done(self) -> bool:
        """Whether its episode has ended well."""
        return self.episode.end not in (None, "fault")

    @property
    def is_over(self) -> bool:
        """Whether it is out of the group: it had too many faults, or others were faster."""
        return self.slot is None and not self.is_done

    def order(self, slot: int) -> Begin | Act:
        """What brings an environment to where the episode is; with the last action, where it has not been answered."""
        plan, actions = self.episode.plan, tuple(turn.answer for turn in self.episode.turns)
        if self.request is not None:
            return Begin(slot, plan.tag, plan.seed, actions, self.episode.seen)
        if not actions:
            return Begin(slot, plan.tag, plan.seed)
        return Begin(slot, plan.tag, plan.seed, actions[:-1], self.episode.seen, actions[-1])

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, as JSON data."""
        return {
            "attempt": self.episode.plan.attempt,
            "is_over": self.is_over,
            "first_version": self.first_version,
            "is_asking": self.request is not None,
            **self.answer.state(),
            "episode": self.episode.state(),
        }


@dataclass(eq=False)
class PlayedGroup:
    """A group that was begun. It is done when `size` of its members are: those that were first."""

    start: GroupStart
    size: int
    members: list[Member] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Its number among the run's groups."""
        return self.start.group

    @property
    def is_done(self) -> bool:
        """Whether enough of its episodes have ended well."""
        return len(self.done) >= self.size

    @property
    def first_version(self) -> int:
        """Of the weights that sampled its first token."""
        return min(member.first_version for member in self.counted())

    def counted(self) -> list[Member]:
        """Members whose episodes have not left: those that were first, or all that are still played."""
        return self.chosen() if self.is_done else [member for member in self.members if not member.is_over]

    def chosen(self) -> list[Member]:
        """The members that were first, in their order."""
        return [self.members[index] for index in sorted(self.done[: self.size])]

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, as JSON data."""
        members = [member.state() for member in self.members]
        return {"number": self.number, "size": self.size, "done": list(self.done), "members": members}


@dataclass
class EpisodeAccount:
    """How many episodes were begun, and what became of them. What is neither here nor there is still open."""

    drawn: int = 0
    ended: dict[EpisodeEnding, int] = field(
        default_factory=lambda: {"trained": 0, "filtered": 0, "stale": 0, "faulty": 0, "spare": 0, "fault": 0}
    )

    def open_by_account(self) -> int:
        """Episodes that must still be open."""
        return self.drawn - sum(self.ended.values())

    def state(self) -> dict[str, Any]:
        """As JSON data."""
        return {"drawn": self.drawn, "ended": dict(self.ended)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpisodeAccount:
        """As it was when the state was taken."""
        return cls(int(state["drawn"]), dict(state["ended"]))
