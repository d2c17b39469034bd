"""Metrics as they come from the loop, made plain: short names, Python numbers, nothing that JSON cannot hold."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Mapping
from typing import Any


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float | int | str]:
    """Strip `@tag` suffixes from the names and turn each value into a float, an int or text.

    Numbers that are not finite become "nan", "inf" or "-inf". Where two names differ only in their tags, the tags
    stay, as in "loss/max".

    Raises:
        TypeError: a value is none of these and no number; the message names it.
    """
    short = Counter(name.partition("@")[0] for name in metrics)
    plain = {}
    for name, value in metrics.items():
        base = name.partition("@")[0]
        plain[base if short[base] == 1 else name.replace("@", "/")] = _plain(name, value)
    return plain


def _plain(name: str, value: Any) -> float | int | str:
    if isinstance(value, str):
        return value
    if not isinstance(value, numbers.Number) and getattr(value, "shape", None) == ():
        value = value.item()  # A numpy or torch scalar.
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise TypeError(f"metric '{name}' is a {type(value).__name__}: {value!r:.60}; metrics are numbers or text")
    return float(value) if math.isfinite(value) else str(float(value))
