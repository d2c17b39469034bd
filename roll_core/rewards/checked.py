"""The check that whatever a reward returned is one score."""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Mapping

from roll_core.rewards.base import Reward, RewardSample, Score, Status

_REASON_LIMIT = 1000


def score_checked(reward: Reward, name: str, sample: RewardSample) -> Score:
    """Exactly one score for a sample, whatever the reward does short of hanging or ending its process."""
    try:
        returned = reward.score(sample)
        return checked_score(returned, name)
    # A process that scores reports its end: exceptions of any kind are the reward's, SystemExit included.
    except BaseException as error:
        return Score(0.0, Status.ERROR, f"reward '{name}' raised {_told(error)}"[:_REASON_LIMIT])


def checked_score(returned: object, name: str) -> Score:
    """What a reward returned, as a score. Anything but a `Score` or a number in [0, 1] gets status ERROR."""
    if isinstance(returned, Score):
        problem = _score_problem(returned)
        if problem:
            return Score(0.0, Status.ERROR, f"reward '{name}' returned a Score whose {problem}"[:_REASON_LIMIT])
        value = float(returned.score) if returned.status is Status.OK else 0.0
        reward = None if returned.reward is None else float(returned.reward)
        costs = {str(name): float(cost) for name, cost in returned.costs.items()}
        return Score(value, returned.status, returned.reason[:_REASON_LIMIT], reward, costs)
    problem = _number_problem(returned, 0.0, 1.0)
    if problem:
        reason = f"reward '{name}' returned {problem}; it must return a number in [0, 1] or a Score"
        return Score(0.0, Status.ERROR, reason[:_REASON_LIMIT])
    return Score(float(returned))  # type: ignore[arg-type]


def _score_problem(score: Score) -> str:
    if not isinstance(score.status, Status):
        return f"status is {_shown(score.status)}, not a roll_core.rewards.Status"
    if not isinstance(score.reason, str):
        return f"reason is {_shown(score.reason)}, not a text"
    if not isinstance(score.costs, Mapping):
        return f"costs are {_shown(score.costs)}, not a mapping of names to numbers"
    for name, cost in score.costs.items():
        problem = _number_problem(cost, 0.0, math.inf)
        if problem:
            return f"cost {_shown(name)} is {problem}"
    if score.reward is not None:
        problem = _number_problem(score.reward, -math.inf, math.inf)
        if problem:
            return f"reward is {problem}"
    problem = _number_problem(score.score, 0.0, 1.0) if score.status is Status.OK else ""
    return f"score is {problem}" if problem else ""


def _number_problem(value: object, low: float, high: float) -> str:
    # bool is an int to Python and text can look like a number; both are more often mistakes than scores.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return f"{_shown(value)} ({type(value).__name__})"
    number = float(value)
    if not math.isfinite(number):
        return f"{number}, which is not finite"
    if not low <= number <= high:
        return f"{number}, which is outside [{low:g}, {high:g}]"
    return ""


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"a value whose repr() raises {type(error).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def _told(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(no text)"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    # The place matters more than the end of a long message.
    return f"{type(error).__name__}: {text[:600]}{where}"
