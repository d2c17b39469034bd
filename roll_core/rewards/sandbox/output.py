"""Comparing what a program wrote with what it should have written."""

from __future__ import annotations

import math
import re

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""How far apart two decimal fractions may be."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PUNCTUATION = re.compile(r"([\[\](){},;:])")
"""What stands beside the numbers of a printed list."""


def same_output(found: str, expected: str) -> bool:
    """Equal but for white space at the ends of lines and of the text, and for the digits of decimal fractions.

    Whole numbers must be equal digit for digit; where either of two numbers has a fraction or an exponent, they may
    differ by 1e-6 of their size.
    """
    ours, theirs = _lines(found), _lines(expected)
    if ours == theirs:
        return True
    if len(ours) != len(theirs):
        return False
    return all(_same_line(one, other) for one, other in zip(ours, theirs))


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _same_line(ours: list[str], theirs: list[str]) -> bool:
    return len(ours) == len(theirs) and all(map(_same_token, ours, theirs))


def _same_token(one: str, other: str) -> bool:
    if one == other:
        return True
    ours, theirs = _PUNCTUATION.split(one), _PUNCTUATION.split(other)
    return len(ours) == len(theirs) and all(map(_same_part, ours, theirs))


def _same_part(one: str, other: str) -> bool:
    if one == other:
        return True
    if not (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)):
        return False
    if not set(".eE") & set(one + other):
        return False
    return math.isclose(float(one), float(other), rel_tol=RELATIVE, abs_tol=ABSOLUTE)
