"""Which prompts' answers are kept for training: by the mean or the spread of their scores."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_core.objects import resolve_object

GroupFilter = Callable[[Sequence[float], Mapping[str, Any]], bool]
"""Takes the scores of one prompt's answers and `filter_args`; True keeps them."""

BUILTIN_FILTERS = {
    "no_filter": "roll_core.rollout.filters:keep_all",
    "mean_filter": "roll_core.rollout.filters:keep_by_mean",
    "std_filter": "roll_core.rollout.filters:keep_by_spread",
}
THRESHOLDS: Mapping[str, tuple[str, ...]] = {
    "mean_filter": ("threshold_down", "threshold_up"),
    "std_filter": ("std_threshold",),
}
"""The numbers that `filter_args` may hold. Other filters are handed whatever it holds."""


def group_filter(kind: str) -> GroupFilter:
    """A filter by built-in name, dotted path or file path.

    Raises:
        ObjectError: there is none.
    """
    found: GroupFilter = resolve_object(kind, BUILTIN_FILTERS, "query filter")
    return found


def keep_all(scores: Sequence[float], arguments: Mapping[str, Any]) -> bool:
    """Keep every prompt."""
    return True


def keep_by_mean(scores: Sequence[float], arguments: Mapping[str, Any]) -> bool:
    """Keep prompts with threshold_down (default -1) < mean score < threshold_up (default: none)."""
    mean = statistics.fmean(scores)
    return float(arguments.get("threshold_down", -1)) < mean < float(arguments.get("threshold_up", "inf"))


def keep_by_spread(scores: Sequence[float], arguments: Mapping[str, Any]) -> bool:
    """Keep prompts whose scores have a standard deviation above std_threshold (default -1)."""
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return spread > float(arguments.get("std_threshold", -1))
