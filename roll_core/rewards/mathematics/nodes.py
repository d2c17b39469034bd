"""What an answer may be: a number or expression, a word, several answers, a set, a relation, a matrix, a ratio."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """One expression, unit and percent sign included."""

    text: str


@dataclass(frozen=True)
class Word:
    """An answer in words, without spaces, punctuation and upper case."""

    text: str


@dataclass(frozen=True)
class Items:
    r"""Several answers: between `\{` and `\}` a set, between brackets a tuple or interval, else a list.

    `connective` is `\land` where commas or "and" separate them, `\lor` where "or" does.
    """

    items: tuple[Node, ...]
    left: str = ""
    right: str = ""
    connective: str = "\\land"

    @property
    def is_set(self) -> bool:
        return self.left == "{"

    @property
    def is_bracketed(self) -> bool:
        """Whether order counts: a tuple, vector or interval."""
        return self.left in ("(", "[")


@dataclass(frozen=True)
class SetOperation:
    """Sets joined by union, intersection or difference, from left to right."""

    parts: tuple[Node, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """A chain such as `x = 2y = 4` or `0 <= x < 3`: texts of the sides, and what stands between them."""

    sides: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def is_equation(self) -> bool:
        return all(operator == "=" for operator in self.operators)


@dataclass(frozen=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True)
class Residue:
    """An integer as its least residue: what `10 \\bmod 7` and `x \\equiv 3 \\pmod 7` say."""

    value: int
    modulus: int


@dataclass(frozen=True)
class Ratio:
    """`2:3` or `2:3:4`: the texts of its parts. `is_spelled` where "to" stands between them, which ranges have too."""

    parts: tuple[str, ...]
    is_spelled: bool = False

    @property
    def may_be_time(self) -> bool:
        """Whether a clock shows this: 4:30, and 2:15, which is the same ratio and another time."""
        hour, *rest = self.parts
        return re.fullmatch(r"1?\d|2[0-3]", hour) is not None and all(re.fullmatch(r"[0-5]\d", part) for part in rest)


Node = Scalar | Word | Items | SetOperation | Relation | Matrix | Residue | Ratio

REALS = Items((Scalar("-\\infty"), Scalar("\\infty")), "(", ")")
NOTHING = Items((), "{", "}")
