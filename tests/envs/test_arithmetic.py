"""Arithmetic from text: exact, and nothing but arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest

from roll_core.envs.arithmetic import ExpressionError, evaluate, read_number, shown


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * -4", "-20"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "1/3"),
        ("1 / 8", "0.125"),
        ("-1 / 20", "-0.05"),
        ("1.", "1"),
        ("100 / 50", "2"),
        ("1 / 50", "0.02"),
        (" 7 ", "7"),
    ],
)
def test_results_are_exact(expression: str, result: str) -> None:
    assert shown(evaluate(expression)) == result


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("__import__('os')", "the expression has '_'; only numbers"),
        ("2 ** 3", "only numbers"),
        ("7 // 2", "only numbers"),
        ("2(3)", "only numbers"),
        ("()", "only numbers"),
        ("1e9", "the expression has 'e'"),
        ("\u0663 + 1", "the expression has '\u0663'"),
        ("1 +", "'1 +' is not an expression"),
        ("", "'' is not an expression"),
        ("007", "'007' is not an expression"),
        ("1 / (2 - 2)", "division by zero"),
        ("1" * 201, "the expression has 201 characters; at most 200 are taken"),
        ("(" * 190, "is not an expression"),
        (" * ".join(["9" * 20] * 3), "a number with more than 40 digits comes up"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_arithmetic_is_told(expression: str, said: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate(expression)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("42", 42), (" -7 ", -7), ("1,234", 1234), ("$5", 5), ("0.5", Fraction(1, 2)), ("1/3", Fraction(1, 3))],
)
def test_plain_numbers_are_read(text: str, value: Fraction) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize("text", ["", "x", "1/0", "1e9", "nan", "--1", "1 2", "\u0664", "9" * 100])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert read_number(text) is None
