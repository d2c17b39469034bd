"""Environments of the package gem-llm, which speak text already.

What they are not is private: they draw from Python's and numpy's global random state, which other environments of the
same process share. So each gets a state of its own that is put in place around every call.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import random
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from roll_core.envs.base import Environment, StepResult
from roll_core.errors import RollError


class GemEnvironment(Environment):
    """Any single-agent environment of gem-llm.

    Args:
        id: what `gem.make` knows it by, such as game:GuessTheNumber-v0-easy.
        kwargs: more arguments of `gem.make`.
        max_steps: steps after which an episode is truncated, on top of the environment's own limit.
        success_reward: an episode whose last reward is at least this is a success.

    Raises:
        RollError: gem-llm is not installed, or has no such environment.
    """

    def __init__(
        self, *, id: str, kwargs: Mapping[str, Any] | None = None, max_steps: int = 100, success_reward: float = 1.0
    ) -> None:
        self.max_steps, self.success_reward, self.num_steps = max_steps, success_reward, 0
        self.state = _initial_state()
        with self._private_randomness():
            self.inner = _made(id, kwargs or {})

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin anew; what is random comes from the seed."""
        self.num_steps, self.state = 0, _initial_state(seed)
        if hasattr(self.inner, "idx"):
            # Environments over a data set count their episodes here, and draw another set after so many. (0.1.0)
            self.inner.idx = 0
        with self._private_randomness():
            # numpy's old generator, which gem seeds, takes 32 bits.
            observation, info = self.inner.reset(seed=seed % 2**32)
        return str(observation), {"suffix": str(info.get("suffix") or "")}

    def step(self, action: str) -> StepResult:
        """Hand the answer to the environment."""
        self.num_steps += 1
        with self._private_randomness():
            observation, given, terminated, truncated, told = self.inner.step(action)
        reward = float(given)
        is_late = not terminated and self.num_steps >= self.max_steps
        is_over = bool(terminated or truncated or is_late)
        info = {
            "suffix": str(told.get("suffix") or ""),
            "metrics": {"success": float(is_over and reward >= self.success_reward)},
            "metrics_agg_mode": {"success": "last"},
        }
        return str(observation), reward, bool(terminated), bool(truncated) or is_late, info

    def close(self) -> None:
        """Close the environment, where it can be."""
        close = getattr(self.inner, "close", None)
        if close is not None:
            close()

    def sample_random_action(self) -> str:
        """What the environment makes up."""
        with self._private_randomness():
            return str(self.inner.sample_random_action())

    @contextlib.contextmanager
    def _private_randomness(self) -> Iterator[None]:
        """This environment's random state in place of the process's."""
        numpy_random = _numpy_random()
        before = random.getstate(), numpy_random.get_state()
        random.setstate(self.state[0])
        numpy_random.set_state(self.state[1])
        try:
            yield
        finally:
            self.state = random.getstate(), numpy_random.get_state()
            random.setstate(before[0])
            numpy_random.set_state(before[1])


def _numpy_random() -> Any:
    # numpy is imported by gem itself, and by nobody who does not use it.
    return importlib.import_module("numpy.random")


def _initial_state(seed: int = 0) -> tuple[Any, Any]:
    return random.Random(seed).getstate(), _numpy_random().RandomState(seed % 2**32).get_state()


def _made(id: str, options: Mapping[str, Any]) -> Any:
    gem = _imported()
    try:
        return gem.make(id, **options)
    # LookupError: word lists of nltk, which some games need, are downloaded apart from it.
    except (ImportError, LookupError, TypeError, ValueError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        raise RollError(
            f"gem-llm cannot make '{id}' with {shown}: {_without_frame(error)}\n  try: another env_config.id"
        ) from error


def _without_frame(error: Exception) -> str:
    """Its message; nltk frames those of its own in stars, colours and empty lines."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip(" *")]
    return " ".join(lines) if isinstance(error, LookupError) else text


def _imported() -> ModuleType:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        # The names of its environments are registered by its sub-package.
        importlib.import_module("gem.envs")
        return importlib.import_module("gem")
    except ModuleNotFoundError as error:
        raise RollError(
            f"environment 'gem' needs the package gem-llm; no module '{error.name}' is here\n  try: pip install gem-llm"
        ) from error
    finally:
        # Version 0.1.0 configures the logging of the whole process when it is imported.
        root.handlers[:] = handlers
        root.setLevel(level)
