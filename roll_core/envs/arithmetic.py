"""Arithmetic on exact fractions, from text: what a calculator does when a model types into it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

MAX_CHARACTERS = 200
MAX_DIGITS = 40
"""Of a result, above or below the line: products of products would otherwise grow without bound."""
_TAKEN = "only numbers, + - * / and brackets can be calculated with"

_OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """An expression that has no value; the message is written for who typed it."""


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression of numbers, + - * / and brackets.

    Raises:
        ExpressionError: it is something else, or has no value.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"the expression has {len(expression)} characters; at most {MAX_CHARACTERS} are taken")
    # Checked before Python reads it, which knows many more ways to write something.
    strange = [character for character in expression if character not in "0123456789.+-*/() "]
    if strange:
        raise ExpressionError(f"the expression has {strange[0]!r}; {_TAKEN}")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"{expression.strip()!r} is not an expression") from None
    return _value(tree.body, expression.strip())


def shown(value: Fraction) -> str:
    """A value as digits where it has finitely many, else as a fraction such as 1/3."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    while rest % 10 == 0 or rest % 5 == 0 or rest % 2 == 0:
        rest //= 10 if rest % 10 == 0 else 5 if rest % 5 == 0 else 2
        places += 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    whole, digits = divmod(abs(value.numerator) * 10**places // value.denominator, 10**places)
    return f"{'-' * (value < 0)}{whole}.{digits:0{places}d}".rstrip("0")


def read_number(text: str) -> Fraction | None:
    """The value of a plain number such as -3, 1,234, 0.25 or 1/3; None for anything else."""
    plain = text.strip().replace(",", "").replace("$", "")
    allowed = plain and len(plain) <= 2 * MAX_DIGITS and set(plain) <= set("0123456789.-+/")
    try:
        return Fraction(plain) if allowed else None
    except (ValueError, ZeroDivisionError):
        return None


def _value(node: ast.expr, expression: str) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(ast.get_source_segment(expression, node) or "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, expression)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left, expression), _value(node.right, expression)
        if isinstance(node.op, ast.Div) and right == 0:
            raise ExpressionError("division by zero")
        value = _OPERATIONS[type(node.op)](left, right)
        if max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
            raise ExpressionError(f"a number with more than {MAX_DIGITS} digits comes up")
        return value
    raise ExpressionError(_TAKEN)
