"""Environments with one mistake each, for the contract to catch. `Right` has none."""

from __future__ import annotations

import random
from typing import Any

from roll_core.envs.base import Environment, StepResult

LAST = 5


class Right(Environment):
    """Ends after five steps, or with the drawn number."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self.random = random.Random(seed)
        self.num_steps = 0
        self.number = self.draw(seed)
        return f"number {self.number}", {}

    def draw(self, seed: int) -> int:
        return self.random.randrange(1000)

    def step(self, action: str) -> StepResult:
        self.num_steps += 1
        is_right = action == str(self.number)
        metrics = {"success": float(is_right), "action_is_valid": float(action.isascii() and action.isdigit())}
        return "again", float(is_right), is_right, self.num_steps >= LAST, {"metrics": metrics}

    def sample_random_action(self) -> str:
        return str(self.random.randrange(1000))


class SaltedHash(Right):
    def draw(self, seed: int) -> int:
        return hash(f"seed {seed}") % 1000


class GlobalRandomness(Right):
    def draw(self, seed: int) -> int:
        random.seed(seed)
        return random.randrange(1000)


class LeftOver(Right):
    before = 0

    def draw(self, seed: int) -> int:
        self.before += 1
        return self.before


class SharedState(Right):
    rounds = [0]

    def step(self, action: str) -> StepResult:
        self.rounds[0] += 1
        _, *rest = super().step(action)
        return f"round {self.rounds[0]}", *rest


class SeedIgnored(Right):
    def draw(self, seed: int) -> int:
        return 7


class Endless(Right):
    def step(self, action: str) -> StepResult:
        return "again", 0.0, False, False, {}


class Unwinnable(Right):
    def step(self, action: str) -> StepResult:
        observation, _, _, truncated, info = super().step(action)
        return observation, 0.0, False, truncated, {**info, "metrics": {"success": 0.0}}


class Raises(Right):
    def step(self, action: str) -> StepResult:
        if action.isdigit():
            int(action)
        elif not action.strip():
            raise ValueError("nothing was said")
        return super().step(action)


class NotANumber(Right):
    def step(self, action: str) -> StepResult:
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest


class Echo(Right):
    def step(self, action: str) -> StepResult:
        _, *rest = super().step(action)
        return action, *rest


class UnknownMode(Right):
    def step(self, action: str) -> StepResult:
        *rest, info = super().step(action)
        return *rest, {**info, "metrics_agg_mode": {"success": "median"}}


class EverythingIsValid(Right):
    def step(self, action: str) -> StepResult:
        *rest, info = super().step(action)
        return *rest, {"metrics": {**info["metrics"], "action_is_valid": 1.0}}
