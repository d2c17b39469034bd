"""Cleaned expressions as expressions of sympy, without floats. Importing this module imports sympy."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import latex2sympy

from roll_core.rewards.mathematics.exact import exact_value
from roll_core.rewards.mathematics.structure import merge_all_thousands
from roll_core.rewards.mathematics.units import split_unit

# cos + i sin of an angle.
_CIS = re.compile(
    r"(?:\\text ?\{ ?cis ?\}|\\?(?<![A-Za-z])cis(?![a-z])) ?"
    r"(?P<angle>\([^()]*\)|(?:\d+(?:\.\d+)?|\\frac\{[^{}]*\}\{[^{}]*\}|\\pi|\\theta|\^\\circ|/| )+)"
)


class Unreadable(Exception):
    """An expression that the LaTeX parser does not understand."""


@lru_cache(maxsize=256)
def read_expression(text: str) -> Any:
    """A cleaned expression as a sympy expression without floats. A decimal becomes the fraction it stands for."""
    plain = exact_value(text)
    if plain is not None:
        return sympy.Rational(plain.numerator, plain.denominator)
    prepared = _prepared(text)
    try:
        value = latex2sympy(prepared, is_real=True, convert_degrees=False, normalization_config=None)
    except MemoryError:
        raise
    # The parser has no error class of its own: it raises Exception, and whatever its grammar trips over.
    except Exception:
        raise Unreadable(text[:200]) from None
    if not isinstance(value, sympy.Expr | sympy.MatrixBase):
        raise Unreadable(text[:200])
    imaginary = [symbol for symbol in value.free_symbols if symbol.name == "i"]
    value = value.subs({symbol: sympy.I for symbol in imaginary}).doit()
    if value.has(sympy.Float):
        value = sympy.nsimplify(value, rational=True)
    if value.has(sympy.nan, sympy.zoo):
        raise Unreadable(text[:200])
    return value


def _prepared(text: str) -> str:
    if "!!" in text:
        raise Unreadable("a double factorial")
    text = merge_all_thousands(text)
    text = _CIS.sub(lambda cis: rf"(\cos({cis['angle']})+i\cdot \sin({cis['angle']}))", text)
    text = re.sub(r"(\d+(?:\.\d+)?|\)|\}|[a-zA-Z]) ?\^\\circ", r"\1\\cdot \\frac{\\pi}{180}", text)
    text = re.sub(r"(\d+(?:\.\d+)?)\\cdot \\frac\{\\pi\}\{180\}", r"(\1\\cdot \\frac{\\pi}{180})", text)
    text = text.replace("%", r"\cdot \frac{1}{100}")
    text = re.sub(r"(?<![\d_{.])(\d*)\.(\d+)", _decimal_fraction, text)
    # Parser versions disagree about gamma: a symbol to nobody, a constant to some.
    return re.sub(r"\\gamma(?![A-Za-z])", r"z_{gamma}", text)


def _decimal_fraction(match: re.Match[str]) -> str:
    digits = match.group(2)
    return rf"\frac{{{(match.group(1) + digits).lstrip('0') or '0'}}}{{1{'0' * len(digits)}}}"


def value_text(text: str) -> str:
    """A cleaned text without its unit."""
    return split_unit(text)[0]
