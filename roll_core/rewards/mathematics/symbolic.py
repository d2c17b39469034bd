"""Equality of expressions, equations and sets of reals, decided by computer algebra.

Nothing here is rounded to a fixed number of decimals: decimals are read as exact fractions, and numbers are compared
by their relative difference at a precision that is raised until it decides. Importing this module imports sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy
from sympy.solvers.inequalities import solve_univariate_inequality

from roll_core.rewards.mathematics.algebra import CannotCompare, Quantity, UnreadableAnswer, UnreadableReference
from roll_core.rewards.mathematics.exact import as_decimal, exact_value, is_rounding_of
from roll_core.rewards.mathematics.expressions import Unreadable, read_expression, value_text
from roll_core.rewards.mathematics.nodes import (
    Items,
    Matrix,
    Node,
    Ratio,
    Relation,
    Residue,
    Scalar,
    SetOperation,
    Word,
)
from roll_core.rewards.mathematics.scalars import is_rounded
from roll_core.rewards.mathematics.structure import read

_DIGITS = 25
# How far cancellation is followed: numbers that agree to so many digits are equal; functions at a point, to fewer.
_MAX_DIGITS = 400
_MAX_DIGITS_AT_POINT = 60
_POINTS = ("37/100", "19/10", "-7/10", "-23/10", "51/10", "11/100", "-31/10", "83/10")
_INTEGER_POINTS = ("1", "2", "3", "4", "5", "6")
_MIN_POINTS = 3
_STRICT = {"<": sympy.StrictLessThan, "<=": sympy.LessThan, ">": sympy.StrictGreaterThan, ">=": sympy.GreaterThan}
_DOMAINS = {
    r"\mathbb{Z}": sympy.S.Integers,
    **dict.fromkeys([r"\mathbb{Z}^{+}", r"\mathbb{Z}_{+}", r"\mathbb{N}", r"\mathbb{N}^{+}"], sympy.S.Naturals),
    r"\mathbb{Q}": sympy.S.Rationals,
}


class SympyAlgebra:
    """The algebra of `roll_core.rewards.mathematics.compare`, by sympy."""

    def same_expression(self, reference: Quantity, answer: Quantity) -> bool:
        expected, given = _both(read_expression, reference.text, answer.text)
        expected, given = _scaled(expected, reference.factor), _scaled(given, answer.factor)
        if same_value(expected, given):
            return True
        return _is_rounding(reference, answer, given) or _is_rounding(answer, reference, expected)

    def same_equation(self, reference: Relation, answer: Relation) -> bool:
        expected, given = _both(_as_zero, reference, answer)
        if expected.free_symbols != given.free_symbols or not expected.free_symbols:
            return False
        # Equations with the same solutions differ by a factor. sympy cancels the common one: x = 1 from 2x = 2.
        ratio = sympy.cancel(sympy.together(expected / given)) if given != 0 else sympy.nan
        return bool(ratio.is_number and ratio.is_finite and ratio != 0)

    def same_set(self, reference: Node, answer: Node) -> bool:
        if isinstance(reference, Relation) and isinstance(answer, Relation):
            same = _same_inequality(reference, answer)
            if same is not None:
                return same
        expected_symbols, given_symbols = _both(_symbols, reference, answer)
        if expected_symbols and given_symbols and expected_symbols != given_symbols:
            return False
        if len(expected_symbols | given_symbols) > 1:
            raise CannotCompare("inequalities in several variables that are no multiples of each other")
        expected, given = _both(_as_set, reference, answer)
        return _same_sets(expected, given)


def _both(reader: Callable[[Any], Any], reference: Any, answer: Any) -> tuple[Any, Any]:
    try:
        expected = reader(reference)
    except Unreadable as error:
        raise UnreadableReference(f"the reference cannot be read: {error}") from None
    try:
        return expected, reader(answer)
    except Unreadable as error:
        raise UnreadableAnswer(f"the boxed answer cannot be read: {error}") from None


def _scaled(value: Any, factor: Fraction) -> Any:
    return value if factor == 1 else value * sympy.Rational(factor.numerator, factor.denominator)


def _is_rounding(decimal: Quantity, other: Quantity, value: Any) -> bool:
    written = as_decimal(decimal.text)
    if written is None or exact_value(other.text) is not None or not _is_real_number(value):
        return False
    approximate = sympy.Rational(_digits(value, 60))
    fraction = Fraction(int(approximate.p), int(approximate.q))
    if value.is_Rational:
        return is_rounded(decimal, fraction)
    return is_rounding_of(written, fraction / decimal.factor)


def same_value(expected: Any, given: Any) -> bool:
    """Whether two expressions are equal wherever both are defined."""
    if expected == given:
        return True
    matrices = isinstance(expected, sympy.MatrixBase), isinstance(given, sympy.MatrixBase)
    if any(matrices):
        if not all(matrices) or expected.shape != given.shape:
            return False
        return all(same_value(left, right) for left, right in zip(expected, given))
    if expected.is_Rational and given.is_Rational:
        return False
    if expected.has(sympy.oo, -sympy.oo) or given.has(sympy.oo, -sympy.oo):
        return bool(sympy.simplify(expected) == sympy.simplify(given))
    difference = expected - given
    if difference.is_number:
        return _is_zero(difference)
    return _same_function(expected, given)


def _is_zero(number: Any, max_digits: int = _MAX_DIGITS) -> bool:
    """Whether an expression without variables is zero, decided at up to `max_digits` digits."""
    if number.is_Rational:
        return bool(number == 0)
    digits = _digits(number, _DIGITS, max_digits)
    parts = digits.as_real_imag() if digits.is_number else ()
    if not parts or not all(part.is_Float or part.is_Rational for part in parts):
        simple = sympy.simplify(number)
        if not simple.is_Rational:
            raise CannotCompare("numbers that cannot be evaluated")
        return bool(simple == 0)
    # A Float of precision 1 is what evalf returns when all its digits cancelled.
    return all(part == 0 or (part.is_Float and part._prec == 1) for part in parts)


def _digits(number: Any, count: int, max_digits: int = _MAX_DIGITS) -> Any:
    try:
        return number.evalf(count, maxn=max_digits)
    except ArithmeticError:
        raise CannotCompare("a number too large to evaluate") from None


def _same_function(expected: Any, given: Any) -> bool:
    symbols = sorted(expected.free_symbols | given.free_symbols, key=str)
    # A few points tell most different functions apart, before powers are expanded to find out.
    verdict = _same_at(expected, given, symbols, _POINTS)
    if verdict is False:
        return False
    difference = expected - given
    if difference.is_rational_function(*symbols):
        return bool(sympy.cancel(sympy.together(sympy.expand(difference))) == 0)
    if verdict is None:
        verdict = _same_at(expected, given, symbols, _INTEGER_POINTS)
    if verdict is not None:
        return verdict
    if sympy.simplify(difference) == 0:
        return True
    raise CannotCompare("expressions that can be evaluated together nowhere")


def _same_at(expected: Any, given: Any, symbols: Sequence[Any], points: Sequence[str]) -> bool | None:
    """Whether two functions agree at all points where both are real; None if there are too few of those."""
    count = 0
    for start in range(len(points)):
        values = {
            symbol: sympy.Rational(points[(start + 3 * place) % len(points)]) for place, symbol in enumerate(symbols)
        }
        left, right = expected.subs(values), given.subs(values)
        if not all(_is_real_number(side) for side in (left, right)):
            continue
        if not _is_zero(left - right, _MAX_DIGITS_AT_POINT):
            return False
        count += 1
    return True if count >= _MIN_POINTS else None


def _is_real_number(value: Any) -> bool:
    if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo):
        return False
    digits = _digits(value, 15)
    return bool(digits.is_Float or digits.is_Rational)


def _as_zero(equation: Relation) -> Any:
    """An equation as the expression that is zero, without common denominators."""
    left, right = read_expression(value_text(equation.sides[0])), read_expression(value_text(equation.sides[-1]))
    if isinstance(left, sympy.MatrixBase) or isinstance(right, sympy.MatrixBase):
        raise Unreadable("an equation of matrices")
    return sympy.fraction(sympy.cancel(sympy.together(left - right)))[0]


def _symbols(node: Node) -> set[Any]:
    if isinstance(node, Relation):
        return set().union(*(read_expression(value_text(side)).free_symbols for side in node.sides))
    if isinstance(node, Items):
        return set().union(*(_symbols(item) for item in node.items))
    if isinstance(node, SetOperation):
        return set().union(*(_symbols(part) for part in node.parts))
    return set()


def _same_inequality(reference: Relation, answer: Relation) -> bool | None:
    """Two single inequalities in several variables; None where this does not tell."""
    if len(reference.operators) != 1 or len(answer.operators) != 1:
        return None
    expected, given = _both(_as_positive, reference, answer)
    if len(expected[0].free_symbols | given[0].free_symbols) < 2:
        return None
    if expected[1] != given[1] or given[0] == 0:
        return False
    ratio = sympy.cancel(sympy.together(expected[0] / given[0]))
    if not ratio.is_number:
        return None
    return bool(ratio > 0) or (expected[1] == "!=" and bool(ratio < 0))


def _as_positive(relation: Relation) -> tuple[Any, str]:
    """The expression that an inequality says is positive, with `>`, `>=` or `!=`."""
    left, right = read_expression(relation.sides[0]), read_expression(relation.sides[1])
    operator = relation.operators[0]
    if operator in ("<", "<="):
        return right - left, operator.replace("<", ">")
    return left - right, operator


def _as_set(node: Node) -> Any:
    if isinstance(node, Relation):
        return _solutions(node)
    if isinstance(node, SetOperation):
        result = _as_set(node.parts[0])
        for operator, part in zip(node.operators, node.parts[1:]):
            other = _as_set(part)
            if operator == "\\cup":
                result = sympy.Union(result, other)
            else:
                result = sympy.Intersection(result, other) if operator == "\\cap" else sympy.Complement(result, other)
        return result
    if isinstance(node, Items) and node.is_bracketed and len(node.items) == 2:
        low, high = (_endpoint(item) for item in node.items)
        return sympy.Interval(low, high, node.left == "(", node.right == ")")
    if isinstance(node, Items) and not node.is_bracketed:
        sets = [_as_set(item) for item in node.items]
        is_condition = any(isinstance(item, Relation) for item in node.items) and node.connective == "\\land"
        return sympy.Intersection(*sets) if is_condition else sympy.Union(*sets)
    if isinstance(node, Scalar) and node.text in _DOMAINS:
        return _DOMAINS[node.text]
    if isinstance(node, Scalar):
        return sympy.FiniteSet(_endpoint(node))
    raise Unreadable("neither a set nor a condition")


def _endpoint(node: Node) -> Any:
    if not isinstance(node, Scalar):
        raise Unreadable("a set whose bounds are no numbers")
    value = read_expression(value_text(node.text))
    if isinstance(value, sympy.MatrixBase) or not value.is_extended_real or value.free_symbols:
        raise Unreadable(f"{node.text[:100]} as the bound of a set of reals")
    return value


def _solutions(relation: Relation) -> Any:
    """The reals that satisfy a chain of relations in one variable."""
    result: Any = sympy.S.Reals
    for left_text, operator, right_text in zip(relation.sides, relation.operators, relation.sides[1:]):
        left, right = read_expression(value_text(left_text)), read_expression(value_text(right_text))
        symbols = list(left.free_symbols | right.free_symbols)
        if len(symbols) != 1:
            raise Unreadable("a condition that is not about one variable")
        variable = sympy.Symbol("x", real=True)
        left, right = left.subs(symbols[0], variable), right.subs(symbols[0], variable)
        if operator in ("=", "!="):
            roots = sympy.solveset(left - right, variable, sympy.S.Reals)
            part = roots if operator == "=" else sympy.Complement(sympy.S.Reals, roots)
        else:
            part = _solved(_STRICT[operator](left, right), variable)
        result = sympy.Intersection(result, part)
    return result


def _solved(inequality: Any, variable: Any) -> Any:
    if inequality in (sympy.true, sympy.false):
        return sympy.S.Reals if inequality == sympy.true else sympy.S.EmptySet
    try:
        return solve_univariate_inequality(inequality, variable, relational=False, domain=sympy.S.Reals)
    except NotImplementedError as error:
        raise CannotCompare(f"an inequality that cannot be solved: {error}") from None


def _same_sets(expected: Any, given: Any) -> bool:
    if expected == given:
        return True
    if all(_is_countable(numbers) for numbers in (expected, given)):
        contained = [left.is_subset(right) for left, right in ((expected, given), (given, expected))]
        if None not in contained:
            return all(contained)
    difference = sympy.SymmetricDifference(expected, given).doit()
    is_empty = difference.is_empty
    if is_empty is None:
        difference = sympy.Union(sympy.Complement(expected, given), sympy.Complement(given, expected))
        is_empty = difference.is_empty
    for one, other in ((expected, given), (given, expected)):
        if is_empty is None and _is_countable(one) and _holds_interval(other):
            return False
    if is_empty is None:
        raise CannotCompare("sets whose difference cannot be computed")
    return bool(is_empty)


def _is_countable(numbers: Any) -> bool:
    """Whether a set is known to hold rational numbers only, as no interval does."""
    parts = numbers.args if isinstance(numbers, sympy.Intersection) else (numbers,)
    return any(part.is_subset(sympy.S.Rationals) is True for part in parts)


def _holds_interval(numbers: Any) -> bool:
    parts = numbers.args if isinstance(numbers, sympy.Union) else (numbers,)
    return any(isinstance(part, sympy.Interval) for part in parts)


def can_read(node: Node) -> str | None:
    """None if every expression in a node can be read, else the first that cannot."""
    if isinstance(node, Scalar) and node.text in _DOMAINS:
        return None
    if isinstance(node, Scalar):
        try:
            read_expression(value_text(node.text).removesuffix("%").strip())
        except Unreadable as error:
            return str(error)
        return None
    if isinstance(node, Relation):
        children: list[Node] = [read(side) for side in node.sides]
    elif isinstance(node, Ratio):
        children = [Scalar(part) for part in node.parts]
    elif isinstance(node, Items):
        children = list(node.items)
    elif isinstance(node, SetOperation):
        children = list(node.parts)
    elif isinstance(node, Matrix):
        children = [cell for row in node.rows for cell in row]
    else:
        assert isinstance(node, Word | Residue)
        return None
    return next((problem for child in children if (problem := can_read(child)) is not None), None)
