"""Environments as those who play in them see them, wherever they live: what they are told, and what they answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

FaultKind = Literal[
    "make", "reset", "step", "hang", "crash", "not_finite", "too_long", "bad_return", "not_reproducible"
]


@dataclass(frozen=True)
class Kind:
    """A kind of environment: what it is made from, and whether those of one process must take turns."""

    spec: str
    options: Mapping[str, Any] = field(default_factory=dict)
    takes_turns: bool = False


@dataclass(frozen=True)
class Begin:
    """Reset the environment in a slot.

    Where its process was lost, or the run is resumed, `actions` are what was played since, `expected` what was seen
    last, and `then` is the action to go on with, if any.
    """

    slot: int
    tag: str
    seed: int
    actions: tuple[str, ...] = ()
    expected: str | None = None
    then: str | None = None


@dataclass(frozen=True)
class Act:
    """Step the environment in a slot."""

    slot: int
    action: str


@dataclass(frozen=True)
class Observed:
    """What an environment answered, checked."""

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    instruction: str = ""
    suffix: str = ""
    is_tool: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    aggregation: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Fault:
    """An environment that cannot go on, and why."""

    kind: FaultKind
    reason: str


Order = Begin | Act
Answer = Observed | Fault


class Environments(ABC):
    """Environments in numbered slots, each with at most one order at a time."""

    restarts = 0
    """Processes that were killed or ended, and were replaced."""

    @abstractmethod
    def submit(self, orders: Sequence[Order]) -> None:
        """Have orders carried out."""

    @abstractmethod
    def poll(self, seconds: float) -> list[tuple[int, Answer]]:
        """Slots that have answered, with their answers; waits at most so long for the first."""

    @abstractmethod
    def close(self) -> None:
        """End all processes. May be called again."""

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        """The answers, in the order of the orders, where nothing else is under way."""
        self.submit(orders)
        answers: dict[int, Answer] = {}
        while len(answers) < len(orders):
            answers |= self.poll(1.0)
        return [answers[order.slot] for order in orders]
