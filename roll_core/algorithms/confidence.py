"""How sure a share is that was counted on a sample: right answers among those that were generated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
"""Standard deviations that 95% of a normal distribution lie within."""


@dataclass(frozen=True)
class Share:
    """`right` of `total` cases, in `groups` of which `groups_right` have a right one; `low` and `high` bound the share
    that endless sampling would give, at 95%."""

    right: int
    total: int
    groups: int
    groups_right: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share itself."""
        return self.right / self.total


def share(groups: Sequence[Sequence[bool]]) -> Share:
    """The share of true cases, with Wilson's interval for as many independent cases as the groups are worth.

    Cases of a group, such as answers to one prompt, are alike. With x_g true cases among the n_g of group g, p the
    share, N cases and G groups, the share's variance is estimated as

        v = G / (G - 1) * sum_g (x_g - p n_g)^2 / N^2

    and n = p (1 - p) / v cases are the independent ones, at most N; G where v is 0. Source: E. B. Wilson, J. Am. Stat.
    Assoc. 22 (1927) for the interval; E. L. Korn and B. I. Graubard, Survey Methodology 24 (1998) for the number.

    Raises:
        ValueError: there is no case.
    """
    filled = [group for group in groups if group]
    total = sum(len(group) for group in filled)
    if total == 0:
        raise ValueError("a share needs at least one case")
    right = sum(sum(group) for group in filled)
    low, high = wilson(right / total, _independent(filled, right, total))
    return Share(right, total, len(filled), sum(any(group) for group in filled), low, high)


def wilson(value: float, number: float) -> tuple[float, float]:
    """Wilson's interval of a share that was counted on `number` independent cases, at 95%."""
    squared = Z95 * Z95 / number
    middle = (value + squared / 2) / (1 + squared)
    half = Z95 / (1 + squared) * math.sqrt(value * (1 - value) / number + squared / number / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def _independent(groups: Sequence[Sequence[bool]], right: int, total: int) -> float:
    if total == len(groups):
        return float(total)
    value = right / total
    spread = sum((sum(group) - value * len(group)) ** 2 for group in groups)
    if len(groups) == 1 or spread == 0:
        return float(len(groups))
    variance = len(groups) / (len(groups) - 1) * spread / total**2
    return min(float(total), value * (1 - value) / variance)
