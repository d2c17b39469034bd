"""Environments as those who play in them see them, wherever they live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from roll_core.rollout.env_process import Act, Begin, Fault, Observed

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
