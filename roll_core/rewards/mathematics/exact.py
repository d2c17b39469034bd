r"""Exact rational arithmetic on written numbers, with bounded cost and without any library.

Reads integers, decimals, repeating decimals, mixed numbers, fractions, powers, factorials and `+ - \cdot /` of these.
Most answers to most questions are such numbers, and a parser of LaTeX need not be started for them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

_MAX_CHARACTERS = 4000
_MAX_BITS = 50_000
_MAX_FACTORIAL = 4000
_MAX_DEPTH = 40
_MIN_ROUNDED_DIGITS = 6

_TOKEN = re.compile(
    r" *(?:(?P<number>\d+\.\d+|\d+\.(?=\\[obd])|\d+|\.\d+)"
    r"(?:\\(?:overline|bar|dot) ?\{(?P<repeating>\d+)\})?"
    r"(?:[eE](?P<tens>[-+]?\d{1,5})(?![\d.]))?"
    r"|(?P<operator>\\frac|\\cdot|[-+/^!(){}:]))"
)
_MIXED = re.compile(r"(?P<sign>-?) ?(?P<whole>\d+) (?P<numerator>\d+) ?/ ?(?P<denominator>\d+)")
_DECIMAL = re.compile(
    r"(?P<sign>-?) ?(?P<whole>\d*)\.(?P<digits>\d+)"
    r"(?:[eE](?P<tens>[-+]?\d{1,5})| ?\\cdot ?10 ?\^ ?\{ ?(?P<power>[-+]?\d{1,5}) ?\})?"
)


class _NotPlain(Exception):
    """The text holds something this reader does not know, or a number too large for it."""


@dataclass(frozen=True)
class Decimal:
    """A number written with a decimal point: its value and the size of one unit in its last place."""

    value: Fraction
    last_place: Fraction
    significant_digits: int


def exact_value(text: str) -> Fraction | None:
    """The value of a cleaned text as an exact fraction, or None if it is not plain arithmetic."""
    if len(text) > _MAX_CHARACTERS:
        return None
    mixed = _MIXED.fullmatch(text)
    if mixed:
        if int(mixed["denominator"]) == 0:
            return None
        value = int(mixed["whole"]) + Fraction(int(mixed["numerator"]), int(mixed["denominator"]))
        return -value if mixed["sign"] else value
    try:
        return _Reader(text).read()
    except (_NotPlain, ZeroDivisionError):
        return None


def as_decimal(text: str) -> Decimal | None:
    """A cleaned text that is one decimal number, possibly times a power of ten; None otherwise."""
    if len(text) > _MAX_CHARACTERS:
        return None
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    digits = match["whole"] + match["digits"]
    scale = int(match["tens"] or match["power"] or 0) - len(match["digits"])
    if abs(scale) > _MAX_CHARACTERS:
        return None
    last_place = Fraction(10) ** scale
    value = int(digits) * last_place
    return Decimal(-value if match["sign"] else value, last_place, len(digits.lstrip("0")))


def is_rounding_of(decimal: Decimal, value: Fraction) -> bool:
    """Whether a decimal of six significant digits or more is a value rounded or cut off in the decimal's last place."""
    error = abs(value) - abs(decimal.value)
    is_close = 2 * abs(error) <= decimal.last_place or 0 <= error < decimal.last_place
    return decimal.significant_digits >= _MIN_ROUNDED_DIGITS and decimal.value * value > 0 and is_close


def has_finite_decimals(value: Fraction) -> bool:
    """Whether a fraction can be written exactly with a decimal point."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > _MAX_BITS or value.denominator.bit_length() > _MAX_BITS:
        raise _NotPlain
    return value


class _Reader:
    """A recursive reader; each method reads what its name says from the front of the remaining tokens."""

    def __init__(self, text: str) -> None:
        self._tokens: list[Fraction | str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _NotPlain
            self._tokens.append(match["operator"] or _number(match))
            position = match.end()
        self._tokens.reverse()
        self._depth = 0

    def read(self) -> Fraction:
        value = self._sum()
        if self._tokens:
            raise _NotPlain
        return value

    def _next_is(self, *operators: str) -> bool:
        return bool(self._tokens) and self._tokens[-1] in operators

    def _expect(self, operator: str) -> None:
        if not self._next_is(operator):
            raise _NotPlain
        self._tokens.pop()

    def _sum(self) -> Fraction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotPlain
        value = self._product()
        while self._next_is("+", "-"):
            sign = 1 if self._tokens.pop() == "+" else -1
            value = _bounded(value + sign * self._product())
        self._depth -= 1
        return value

    def _product(self) -> Fraction:
        sign = 1
        while self._next_is("+", "-"):
            sign = sign if self._tokens.pop() == "+" else -sign
        value = self._power()
        while self._next_is("\\cdot", "/", ":"):
            operator = self._tokens.pop()
            factor_sign = 1
            while self._next_is("+", "-"):
                factor_sign = factor_sign if self._tokens.pop() == "+" else -factor_sign
            factor = factor_sign * self._power()
            value = _bounded(value * factor if operator == "\\cdot" else value / factor)
        return sign * value

    def _power(self) -> Fraction:
        base = self._atom()
        while self._next_is("!"):
            self._tokens.pop()
            # 3!! is a double factorial.
            if base.denominator != 1 or not 0 <= base <= _MAX_FACTORIAL or self._next_is("!"):
                raise _NotPlain
            base = _bounded(Fraction(math.factorial(int(base))))
        if not self._next_is("^"):
            return base
        self._tokens.pop()
        exponent = self._group()
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator != 1 or bits * abs(exponent) > _MAX_BITS or self._next_is("^", "!"):
            raise _NotPlain
        return Fraction(base ** int(exponent))

    def _atom(self) -> Fraction:
        if not self._tokens:
            raise _NotPlain
        token = self._tokens[-1]
        if isinstance(token, Fraction):
            self._tokens.pop()
            return self._mixed(token) if self._next_is("\\frac") else token
        if token == "\\frac":
            self._tokens.pop()
            numerator = self._group()
            return numerator / self._group()
        if token == "(":
            self._tokens.pop()
            value = self._sum()
            self._expect(")")
            return value
        return self._group()

    def _mixed(self, whole: Fraction) -> Fraction:
        self._tokens.pop()
        numerator, denominator = self._group(), self._group()
        if any(part.denominator != 1 or part < 0 for part in (whole, numerator, denominator)):
            raise _NotPlain
        return whole + numerator / denominator

    def _group(self) -> Fraction:
        self._expect("{")
        value = self._sum()
        self._expect("}")
        return value


def _number(match: re.Match[str]) -> Fraction:
    value = Fraction(match["number"].rstrip("."))
    repeating = match["repeating"]
    if repeating:
        decimals = len(match["number"].partition(".")[2])
        value += Fraction(int(repeating), (10 ** len(repeating) - 1) * 10**decimals)
    if match["tens"]:
        if abs(int(match["tens"])) > _MAX_CHARACTERS:
            raise _NotPlain
        value *= Fraction(10) ** int(match["tens"])
    return _bounded(value)
