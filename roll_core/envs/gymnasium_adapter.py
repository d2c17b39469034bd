"""Environments of the package gymnasium with discrete actions, as text."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.envs.base import ActionParser, Environment, StepResult
from roll_core.errors import RollError

INSTRUCTION = "You act in {id}.\nActions: {actions}.\nAnswer with one action, such as <answer>{first}</answer>.\n"


class GymnasiumEnvironment(Environment):
    """Any environment of gymnasium whose action space is `Discrete`.

    An answer without an action does not reach the environment: it sees the same again, and loses a step.

    Args:
        id: what `gymnasium.make` knows it by, such as CliffWalking-v1; `my_package:MyEnv-v0` imports a package first.
        kwargs: more arguments of `gymnasium.make`.
        actions: names of the actions, a list in the order of their numbers or by number; by default the numbers.
        observation: "values", numbers and arrays written out; or "ansi", the environment's own picture in text.
        max_steps: steps after which an episode is truncated, on top of the environment's own limit.
        success_return: an episode whose rewards add up to at least this is a success; without it, there is no metric.
        format_penalty: reward of an answer without an action.
        action_pattern: see `ActionParser`.
        env_instruction: text before the first observation.

    Raises:
        RollError: gymnasium is not installed, has no such environment, or its actions are not discrete.
    """

    def __init__(
        self,
        *,
        id: str,
        kwargs: Mapping[str, Any] | None = None,
        actions: Mapping[int, str] | Sequence[str] | None = None,
        observation: str = "values",
        max_steps: int = 100,
        success_return: float | None = None,
        format_penalty: float = 0.0,
        action_pattern: str = r"<answer>(.*?)</answer>",
        special_token_list: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
        env_instruction: str | None = None,
    ) -> None:
        if observation not in ("values", "ansi"):
            raise ValueError(f"observation is values or ansi, not '{observation}'")
        options = {**(kwargs or {}), **({"render_mode": "ansi"} if observation == "ansi" else {})}
        self.inner = _made(id, options)
        self.actions = _names(id, self.inner.action_space, actions)
        self.observation, self.max_steps = observation, max_steps
        self.success_return, self.format_penalty = success_return, format_penalty
        self.parser = ActionParser(action_pattern, self.actions, tuple(special_token_list))
        names = list(self.actions.values())
        rules = INSTRUCTION.format(id=id, actions=", ".join(names), first=names[0])
        self.instruction = env_instruction if env_instruction is not None else rules
        self.random = random.Random(0)
        self.seen, self.num_steps, self.rewards = "", 0, 0.0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin anew, with the environment's own generator seeded."""
        self.random = random.Random(seed)
        value, _ = self.inner.reset(seed=seed)
        self.seen, self.num_steps, self.rewards = self._shown(value), 0, 0.0
        return self.seen, {"env_instruction": self.instruction}

    def step(self, action: str) -> StepResult:
        """Act, if the answer names an action."""
        parsed = self.parser(action)
        self.num_steps += 1
        before, is_valid = self.seen, isinstance(parsed.action, int)
        reward, terminated, truncated = self.format_penalty, False, False
        if is_valid:
            value, given, terminated, truncated, _ = self.inner.step(parsed.action)
            self.seen, reward = self._shown(value), float(given)
            self.rewards += reward
        metrics = {
            "action_is_effective": float(self.seen != before),
            "action_is_valid": float(is_valid),
            "format_penalty": 0.0 if is_valid else self.format_penalty,
        }
        is_late = not terminated and self.num_steps >= self.max_steps
        if self.success_return is not None:
            metrics["success"] = float((terminated or truncated or is_late) and self.rewards >= self.success_return)
        info = {
            "metrics": metrics,
            "metrics_agg_mode": {"success": "last"},
            "action_desc": parsed.content or "no action",
            "action": parsed.action,
            "think_content": parsed.thought,
        }
        return self.seen, reward, bool(terminated), bool(truncated) or is_late, info

    def close(self) -> None:
        """Close the environment."""
        self.inner.close()

    def sample_random_action(self) -> str:
        """One of the actions."""
        return f"<answer>{self.random.choice(list(self.actions.values()))}</answer>"

    def _shown(self, value: Any) -> str:
        return str(self.inner.render()).rstrip("\n") if self.observation == "ansi" else written(value)


def written(value: Any) -> str:
    """An observation in text: numbers to four digits, sequences and arrays in brackets, mappings with their keys."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {written(inner)}" for key, inner in value.items())
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(written, value))}]"
    if hasattr(value, "tolist"):
        return written(value.tolist())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _made(id: str, options: Mapping[str, Any]) -> Any:
    try:
        gymnasium = importlib.import_module("gymnasium")
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise RollError(
            "environment 'gymnasium' needs the package gymnasium, which is not installed\n  try: pip install gymnasium"
        ) from error
    try:
        return gymnasium.make(id, **options)
    except (gymnasium.error.Error, ModuleNotFoundError, TypeError, ValueError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        raise RollError(
            f"gymnasium {gymnasium.__version__} cannot make '{id}' with {shown}: {error}\n"
            "  try: another env_config.id or env_config.kwargs, or install what the message names"
        ) from error


def _names(id: str, space: Any, given: Mapping[int, str] | Sequence[str] | None) -> dict[int, str]:
    """The names of the actions by their numbers."""
    if type(space).__name__ != "Discrete":
        raise RollError(
            f"the actions of gymnasium's '{id}' are {space}; only Discrete ones can be named in text\n"
            "  try: wrap it in an environment of your own, with a step that takes text"
        )
    numbers = range(int(space.start), int(space.start) + int(space.n))
    if given is None:
        return {number: str(number) for number in numbers}
    if isinstance(given, Mapping):
        # Where a config was written as JSON, keys that are numbers have become text.
        names = {int(number): str(name) for number, name in given.items()}
    else:
        names = dict(zip(numbers, map(str, given))) if len(given) == len(numbers) else {}
    if set(names) != set(numbers) or len({name.lower() for name in names.values()}) != len(numbers):
        raise ValueError(f"'{id}' has {len(numbers)} actions, from {numbers[0]}; each needs a name of its own: {given}")
    return names
