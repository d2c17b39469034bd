"""The seam for environments: text in, text out, with the methods of gymnasium.

An environment is named in a config by a built-in name, a dotted path or a file path (`custom_envs.<tag>.env_type`),
and made from `env_config` in a process of its own that can be killed. It need not derive from `Environment`: any class
with `reset`, `step` and `close` will do.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import RollError
from roll_core.objects import resolve_object

StepResult = tuple[str, float, bool, bool, dict[str, Any]]
"""observation, reward, terminated, truncated, info."""

BUILTIN_ENVIRONMENTS: Mapping[str, str] = {
    "calculator": "roll_core.envs.calculator:Calculator",
    "frozen_lake": "roll_core.envs.frozen_lake:FrozenLake",
    "gem": "roll_core.envs.gem_adapter:GemEnvironment",
    "guess_number": "roll_core.envs.guess_number:GuessNumber",
    "gymnasium": "roll_core.envs.gymnasium_adapter:GymnasiumEnvironment",
    "sokoban": "roll_core.envs.sokoban:Sokoban",
}


class Environment(ABC):
    """One episode at a time: `reset`, then `step` until it says terminated or truncated, then `reset` again.

    Whatever is random must come from the seed of `reset` alone. Members of a group are reset with the same seed, in
    different processes, and must start alike; and when a process has to be killed, its environments are brought back
    by playing their actions again. So never `hash()`, the clock or the global random state.
    """

    @abstractmethod
    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin an episode; the first observation, and what else there is to say:

        env_instruction: text put before the first observation (rules, actions, the answer's format).
        suffix: text put after the observation.
        """

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Act, with the whole text of the model's answer (its special tokens are taken out).

        Of `info` this is read:

        metrics: numbers by name, such as action_is_valid, success.
        metrics_agg_mode: how a metric's values become one of the episode: mean (default), sum, min, max, last, first.
        use_tool: whether the observation is a tool's output, sent with role "tool".
        suffix: as in `reset`.
        """

    def close(self) -> None:
        """Release what the environment holds. Called once, after the last episode."""

    def sample_random_action(self) -> str:
        """An answer by chance, for players that are no model."""
        raise NotImplementedError(f"{type(self).__name__} has no sample_random_action")


def make_environment(spec: str, options: Mapping[str, Any]) -> Any:
    """The environment that a spec names.

    Args:
        options: keyword arguments, from `env_config`.

    Raises:
        RollError: there is none of that name, or it does not take these options.
    """
    maker = resolve_object(spec, BUILTIN_ENVIRONMENTS, "environment")
    try:
        made = maker(**options)
    except TypeError as error:
        raise RollError(f"environment '{spec}' cannot be made with {_shown(options)}: {error}") from error
    missing = [name for name in ("reset", "step") if not callable(getattr(made, name, None))]
    if missing:
        raise RollError(f"environment '{spec}' has no method {' and no '.join(missing)}\n  it is a {type(made)!r}")
    return made


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in options.items())[:300] or "no options"


@dataclass(frozen=True)
class Parsed:
    """What was found in an answer; `action` is None where it names none that there is."""

    action: int | str | None
    content: str
    thought: str = ""


@dataclass(frozen=True)
class ActionParser:
    """Finds the action in an answer.

    Args:
        pattern: searched with DOTALL. One group is the action; of two, the first is a thought.
        actions: names of the actions, by number; found by exact match, whatever the case. Without them the text
            itself is the action.
    """

    pattern: str = r"<answer>(.*?)</answer>"
    actions: Mapping[int, str] = field(default_factory=dict)
    special_tokens: Sequence[str] = ("<|im_start|>", "<|im_end|>")

    def __call__(self, answer: str) -> Parsed:
        """The action in an answer."""
        for token in self.special_tokens:
            answer = answer.replace(token, "")
        found = re.search(self.pattern, answer, re.DOTALL)
        if found is None:
            return Parsed(None, "")
        groups = [group or "" for group in found.groups()] or [found.group()]
        content, thought = groups[-1].strip(), groups[0].strip() if len(groups) > 1 else ""
        if not self.actions:
            return Parsed(content, content, thought)
        numbers = {name.lower(): number for number, name in self.actions.items()}
        return Parsed(numbers.get(content.lower()), content, thought)
