"""The rewards that come with roll-core, and how a reward is made from its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from roll_core.objects import ObjectError, our_name, resolve_object
from roll_core.rewards.base import Reward, RewardSample, Score

BUILTIN_REWARDS: Mapping[str, str] = {
    "code_sandbox": "roll_core.rewards.code_sandbox:CodeSandboxReward",
    "crossthinkqa": "roll_core.rewards.crossthinkqa:CrossThinkQAReward",
    "ifeval": "roll_core.rewards.ifeval:IFEvalReward",
    "llm_judge": "roll_core.rewards.llm_judge:LLMJudgeReward",
    "math_rule": "roll_core.rewards.math_rule:MathRuleReward",
    "multiple_choice": "roll_core.rewards.crossthinkqa:MultipleChoiceReward",
}


class FunctionReward(Reward):
    """A plain function of a sample, used as a reward."""

    def __init__(self, function: Callable[[RewardSample], Any]) -> None:
        self._function = function

    def score(self, sample: RewardSample) -> Score:
        # What the function returned is checked where scores of all rewards are (roll_core.rewards.checked).
        returned: Score = self._function(sample)
        return returned


def make_reward(spec: str, options: Mapping[str, Any] | None = None) -> Reward:
    """A reward from its name, dotted path or file path.

    The object may be a `Reward` subclass, made with `options` as keyword arguments, or a function that takes a
    sample (and `options` as further keyword arguments) and returns a number in [0, 1] or a `Score`.

    Raises:
        ObjectError: there is no such object, it is no reward, or it refuses the options.
    """
    found = resolve_object(spec, BUILTIN_REWARDS, "reward")
    keywords = dict(options or {})
    if isinstance(found, type) and issubclass(found, Reward):
        try:
            return found(**keywords)
        except TypeError as error:
            # Names only: an option may be a key that must not stand in a log.
            raise ObjectError(f"reward '{spec}' cannot be made with options {_listed(keywords)}: {error}") from error
    if isinstance(found, type) or not callable(found):
        raise ObjectError(
            f"reward '{spec}' is {_describe(found)}\n"
            "  it must be a subclass of roll_core.rewards.Reward, or a function that takes a sample and returns a score"
        )
    return FunctionReward(partial(found, **keywords) if keywords else found)


def builtin_class(spec: str) -> type[Reward] | None:
    """The class of a built-in reward, which says what it asks of its worker; None for a reward of one's own."""
    name = our_name(spec)
    if name not in BUILTIN_REWARDS:
        return None
    reward: type[Reward] = resolve_object(name, BUILTIN_REWARDS, "reward")
    return reward


def _listed(keywords: Mapping[str, Any]) -> str:
    return ", ".join(sorted(keywords)) or "none"


def _describe(found: object) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}, which is no Reward"
    return f"a {type(found).__name__}"
