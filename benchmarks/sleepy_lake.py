"""The frozen lake, but that one environment in ten sleeps much longer before each of its observations."""

from __future__ import annotations

import itertools
import time
from typing import Any

from roll_core.envs.base import StepResult
from roll_core.envs.frozen_lake import FrozenLake

SECONDS = 0.02
"""How long an environment takes for a step."""
LATE = 50
"""How many times as long one in ten takes."""
ONE_IN = 10

_made = itertools.count()


class SleepyLake(FrozenLake):
    """A lake that takes its time: the tenth, the twentieth ... of a process takes a lot of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.is_late = next(_made) % ONE_IN == ONE_IN - 1

    def step(self, action: str) -> StepResult:
        """Walk, after a sleep."""
        time.sleep(SECONDS * (LATE if self.is_late else 1))
        return super().step(action)
