"""Whether two single values are the same: numbers and expressions with their units, percentages, numerals."""

from __future__ import annotations

import re
from fractions import Fraction

from roll_core.rewards.mathematics import exact, units
from roll_core.rewards.mathematics.algebra import Algebra, Quantity

BASE_NUMERAL = re.compile(r"(?P<digits>[0-9A-Za-z]+)_\{(?P<base>\d{1,2})\}")


def folded(text: str) -> str:
    """A cleaned text without what never matters: spaces, and upper case where there is no LaTeX command."""
    # Spaces between digits count: 2 1/2 is not 21/2. Case counts in LaTeX commands: \Delta is not \delta.
    text = re.sub(r"(?<!\d) | (?!\d)", "", text)
    return text if "\\" in text else text.lower()


def same_scalar(reference: str, answer: str, algebra: Algebra) -> bool:
    """Whether two cleaned texts, each of one value with its unit or percent sign, mean the same."""
    if folded(reference) == folded(answer):
        return True
    if re.fullmatch("[A-Za-z]", reference) and re.fullmatch("[A-Za-z]", answer):
        return reference.lower() == answer.lower()
    expected, given = BASE_NUMERAL.fullmatch(reference), BASE_NUMERAL.fullmatch(answer)
    if expected or given:
        return _same_numeral(expected, given, reference, answer)
    if not ("^\\circ" in reference and "^\\circ" in answer):
        reference, answer = _without_degrees_beside(answer, reference), _without_degrees_beside(reference, answer)
    return any(same_quantity(left, right, algebra) for left, right in _quantities(*_with_units(reference, answer)))


def _without_degrees_beside(other: str, text: str) -> str:
    """A sum of angles without degree signs, where the other side has neither a unit nor radians."""
    if "\\pi" in other or "\\pi" in text or units.split_unit(other)[1].dimensions:
        return text
    bare = units.without_degrees(text)
    return text if bare is None else bare


def _with_units(reference: str, answer: str) -> tuple[str, units.Unit, str, units.Unit]:
    """The values and units of both sides. Bare letters behind any value are a unit if the other side has that unit."""
    expected, given = units.split_unit(reference), units.split_unit(answer)
    if given[1].dimensions and not expected[1].dimensions:
        bare = units.bare_unit(reference)
        expected = bare if bare[1].dimensions == given[1].dimensions else expected
    elif expected[1].dimensions and not given[1].dimensions:
        bare = units.bare_unit(answer)
        given = bare if bare[1].dimensions == expected[1].dimensions else given
    return *expected, *given


def _same_numeral(expected: re.Match[str] | None, given: re.Match[str] | None, reference: str, answer: str) -> bool:
    """Numerals with a base. Beside one, a bare number may be its digits (the question names the base) or its value."""
    if expected and given:
        values = [_numeral_value(expected), _numeral_value(given)]
        return values[0] is not None and values[0] == values[1]
    numeral, bare = (expected, answer) if expected else (given, reference)
    if numeral is None:
        return False
    value = _numeral_value(numeral)
    return bare.lower() == numeral["digits"].lower() or (value is not None and exact.exact_value(bare) == value)


def _numeral_value(numeral: re.Match[str]) -> int | None:
    base = int(numeral["base"])
    try:
        return int(numeral["digits"], base) if 2 <= base <= 36 else None
    except ValueError:
        return None


def _quantities(
    reference: str, reference_unit: units.Unit, answer: str, answer_unit: units.Unit
) -> list[tuple[Quantity, Quantity]]:
    """Pairs of which one must be equal for the two values to be equal."""
    if reference_unit.dimensions and answer_unit.dimensions:
        if reference_unit.dimensions != answer_unit.dimensions:
            return []
        return [(Quantity(reference, reference_unit.size), Quantity(answer, answer_unit.size))]
    if reference_unit == units.DEGREE and "\\pi" in answer:
        return [(Quantity(rf"({reference})\cdot \pi", Fraction(1, 180)), Quantity(answer))]
    if answer_unit == units.DEGREE and "\\pi" in reference:
        return [(Quantity(reference), Quantity(rf"({answer})\cdot \pi", Fraction(1, 180)))]
    is_percent = [text.endswith("%") for text in (reference, answer)]
    if is_percent[0] != is_percent[1] and (answer_unit if is_percent[0] else reference_unit).dimensions:
        return []
    reference, answer = reference.removesuffix("%").strip(), answer.removesuffix("%").strip()
    scales = [reference_unit.scale, answer_unit.scale]
    if is_percent[0] == is_percent[1]:
        return [(Quantity(reference, scales[0]), Quantity(answer, scales[1]))]
    scales = [scale / 100 if percent else scale for scale, percent in zip(scales, is_percent)]
    pairs = [(Quantity(reference, scales[0]), Quantity(answer, scales[1]))]
    bare = exact.exact_value(answer if is_percent[0] else reference)
    if bare is not None and abs(bare) > 1:
        pairs.append((Quantity(reference), Quantity(answer)))
    return pairs


def same_quantity(reference: Quantity, answer: Quantity, algebra: Algebra) -> bool:
    """Whether two values without units are equal: exactly, or one as a long enough rounding of the other."""
    expected, given = exact.exact_value(reference.text), exact.exact_value(answer.text)
    if expected is None or given is None:
        if folded(reference.text) == folded(answer.text):
            return reference.factor == answer.factor
        return algebra.same_expression(reference, answer)
    expected, given = expected * reference.factor, given * answer.factor
    if expected == given:
        return True
    return is_rounded(reference, given) or is_rounded(answer, expected)


def is_rounded(quantity: Quantity, value: Fraction) -> bool:
    """Whether a quantity is written as a decimal that is the rounding of a value which has no finite decimals."""
    decimal = exact.as_decimal(quantity.text)
    if decimal is None or exact.has_finite_decimals(value):
        return False
    return exact.is_rounding_of(decimal, value / quantity.factor)
