"""What comparing answers needs of computer algebra, and what keeps it from a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from roll_core.rewards.mathematics.nodes import Node, Relation


class NeedsAlgebra(Exception):
    """The quick rules do not decide this comparison."""


class CannotCompare(Exception):
    """Both sides can be read, but nothing here can tell whether they are equal."""


class UnreadableAnswer(Exception):
    """The answer is not mathematics that can be read."""


class UnreadableReference(Exception):
    """The reference is not mathematics that can be read."""


@dataclass(frozen=True)
class Quantity:
    """An expression as text, times an exact factor."""

    text: str
    factor: Fraction = Fraction(1)


class Algebra(Protocol):
    """What comparisons need beyond exact numbers and structure. The first argument is always the reference."""

    def same_expression(self, reference: Quantity, answer: Quantity) -> bool: ...

    def same_equation(self, reference: Relation, answer: Relation) -> bool: ...

    def same_set(self, reference: Node, answer: Node) -> bool: ...


class NoAlgebra:
    """For verdicts that must be quick: whatever takes algebra is left open."""

    def same_expression(self, reference: Quantity, answer: Quantity) -> bool:
        raise NeedsAlgebra

    def same_equation(self, reference: Relation, answer: Relation) -> bool:
        raise NeedsAlgebra

    def same_set(self, reference: Node, answer: Node) -> bool:
        raise NeedsAlgebra
