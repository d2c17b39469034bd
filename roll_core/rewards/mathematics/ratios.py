"""Whether two ratios are the same, or a ratio and a number."""

from __future__ import annotations

from roll_core.rewards.mathematics import units
from roll_core.rewards.mathematics.algebra import Algebra, Quantity
from roll_core.rewards.mathematics.nodes import Node, Ratio, Scalar
from roll_core.rewards.mathematics.scalars import same_quantity, same_scalar


def same_ratio(reference: Node, answer: Node, algebra: Algebra) -> bool:
    """Whether parts are proportional, in their order. A ratio of two is also their quotient."""
    if isinstance(reference, Scalar) and isinstance(answer, Ratio) and len(answer.parts) == 2:
        return same_scalar(reference.text, _quotient(answer), algebra)
    if isinstance(reference, Ratio) and isinstance(answer, Scalar) and len(reference.parts) == 2:
        return same_scalar(_quotient(reference), answer.text, algebra)
    if not isinstance(reference, Ratio) or not isinstance(answer, Ratio) or len(reference.parts) != len(answer.parts):
        return False
    if (reference.may_be_time and answer.may_be_time) or (reference.is_spelled and answer.is_spelled):
        return all(same_scalar(expected, given, algebra) for expected, given in zip(reference.parts, answer.parts))
    expected, given = _ratio_parts(reference), _ratio_parts(answer)
    zero = Quantity("0")
    pivot = next((place for place, part in enumerate(expected) if not same_quantity(zero, part, algebra)), None)
    if pivot is None or same_quantity(zero, given[pivot], algebra):
        return False
    return all(
        same_quantity(_product(part, given[pivot]), _product(other, expected[pivot]), algebra)
        for part, other in zip(expected, given)
    )


def _quotient(ratio: Ratio) -> str:
    first, second = _ratio_parts(ratio)
    factor = first.factor / second.factor
    return rf"\frac{{({first.text})\cdot {factor.numerator}}}{{({second.text})\cdot {factor.denominator}}}"


def _ratio_parts(ratio: Ratio) -> list[Quantity]:
    """The parts without their units, which count where all have one and of one kind."""
    split = [units.split_unit(part) for part in ratio.parts]
    has_common_unit = all(unit.dimensions == split[0][1].dimensions for _, unit in split)
    return [Quantity(value, unit.size if has_common_unit else unit.scale) for value, unit in split]


def _product(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(rf"({left.text})\cdot ({right.text})", left.factor * right.factor)
