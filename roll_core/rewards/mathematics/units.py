r"""Units behind a number: `15 \text{ cm}^{2}`, `90^\circ`, `3 hours`, and currency signs.

A unit on one side only is ignored, because the question usually names it. Units on both sides must agree, after
conversion where the table below knows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from roll_core.rewards.mathematics.notation import DOLLAR

_METERS = {"m": "1", "mm": "1/1000", "cm": "1/100", "dm": "1/10", "km": "1000"}
_METERS |= {"in": "0.0254", "ft": "0.3048", "yd": "0.9144", "mi": "1609.344"}
_GRAMS = {"g": "1", "kg": "1000", "mg": "1/1000"}
_SECONDS = {"s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"}
_DOLLARS = {"dollar": "1", "cent": "1/100"}
# Name, dimension, size in the dimension's base unit.
_KNOWN: dict[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(size))
    for dimension, sizes in {"length": _METERS, "mass": _GRAMS, "time": _SECONDS, "dollar": _DOLLARS}.items()
    for name, size in sizes.items()
}
_ALIASES = {
    **{"meter": "m", "metre": "m", "centimeter": "cm", "centimetre": "cm", "kilometer": "km", "kilometre": "km"},
    **{"millimeter": "mm", "millimetre": "mm", "inch": "in", "inche": "in", "foot": "ft", "feet": "ft", "yard": "yd"},
    **{"mile": "mi", "gram": "g", "kilogram": "kg", "milligram": "mg", "sec": "s", "second": "s", "minute": "min"},
    **{"hr": "h", "hour": "h", "usd": "dollar", DOLLAR: "dollar", "liter": "l", "litre": "l", "gm": "g"},
    **{
        "milliliter": "ml",
        "millilitre": "ml",
        "radian": "rad",
        "pound": "lb",
        "meters": "m",
        "sq": "square",
        "cu": "cubic",
    },
}
_METRIC = ("mm", "cm", "dm", "km", "kg")
# 3mg is also the weight of a mass.
_ALSO_PRODUCTS = ("mg", "ml")
# In cubic meters.
_VOLUMES = {"l": Fraction(1, 1000), "ml": Fraction(1, 1000000)}
_POWERS_BEFORE = {"square": 2, "cubic": 3}
_POWERS_AFTER = {"squared": 2, "cubed": 3}
_EXPANSIONS = {"mph": "mi/h", "kmh": "km/h", "kph": "km/h"}
# Words that say how many, not of what.
_SCALES = {
    **{"hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000", "dozen": "12"},
    **{"half": "1/2", "halve": "1/2", "third": "1/3", "fourth": "1/4", "fifth": "1/5", "sixth": "1/6", "eighth": "1/8"},
    **{"tenth": "1/10", "hundredth": "1/100", "thousandth": "1/1000", "millionth": "1/1000000"},
}
# Arithmetic in words, which is not read.
_ARITHMETIC = frozenset({"times", "plus", "minus", "over", "divided", "factorial", "not", "nor", "to"})
# Words that name no unit: they say what was counted in general, or nothing.
_EMPTY = frozenset({"unit", "of", "the", "a", "approximately", "about", "total", "exactly"})

_POWER = r"(?: ?\^ ?\{? ?-?\d ?\}?)?"
# Atomic and possessive: "5 aaa...?" could be cut into words in more ways than anyone can wait for.
_WORD = rf"(?>(?:\\text\{{[^{{}}]*\}}|[A-Za-z]++){_POWER})"
_UNIT = rf"(?>{_WORD}(?> ?(?:/|\\cdot )? ?{_WORD})*+)"
# In 5x \text{ cm} and mg \text{ N} the letters belong to the value.
_VALUE_END = r"[\d)}!.]|\\pi|(?<![A-Za-z\\])[A-Za-z]{1,3}(?= ?\\text)"
_TRAILING = re.compile(rf"^(?P<value>.*(?:{_VALUE_END}))(?P<space> ?)(?P<unit>{_UNIT})$", re.DOTALL)
_CURRENCY = re.compile(
    rf"^(?P<sign>-?) ?(?:(?P<dollar>{DOLLAR}|US{DOLLAR}|USD|\\text\{{USD ?\}})|\u20ac|\u00a3|Rs\.?) ?"
)
_DEGREES = re.compile(r"^(?P<value>.*[\d)}.]) ?\^\\circ ?(?P<scale>[CF]?)$", re.DOTALL)
_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])|cis(?![a-z])")
_BARE = re.compile(rf"^(?P<value>.*[\w)}}!]) (?P<unit>[A-Za-z]+{_POWER}(?: ?/ ?[A-Za-z]+{_POWER})?)$", re.DOTALL)
_MINUTES = re.compile(
    r"^(?P<degrees>\d+) ?\^\\circ ?(?P<minutes>\d+(?:\.\d+)?) ?'(?!')(?: ?(?P<seconds>\d+(?:\.\d+)?) ?(?:''|\"))?$"
)
_COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?) ?(\\text ?\{[^{}]*\}|[A-Za-z]+)")
_COMPOUND = re.compile(rf"(?:{_COMPOUND_PART.pattern} ?){{2,4}}")
# Minutes or feet, seconds or inches.
_PRIMES = re.compile(r"^(?P<value>-?\d+(?:\.\d+)?) ?(?P<primes>'{1,2})$")
_NUMERIC_VALUE = re.compile(r"(?:[-+\d. (){}/^]|\\(?:frac|sqrt|pi|cdot)(?![A-Za-z]))+")
_PLAIN_VALUE = re.compile(r"-?[\d.,]+(?:/\d+)?|-?\d* ?\\frac\{-?\d+\}\{\d+\}")


@dataclass(frozen=True)
class Unit:
    """Dimensions with their exponents, and the size in the table's base units.

    `scale` is the part of the size that counts even where the unit is ignored: 1000000 in "million dollars".
    """

    dimensions: Mapping[str, int]
    size: Fraction = Fraction(1)
    scale: Fraction = Fraction(1)


NO_UNIT = Unit({})
DEGREE = Unit({"degree": 1})


def split_unit(text: str) -> tuple[str, Unit]:
    """The value and the unit of a cleaned answer; `NO_UNIT` where it has none or is only words."""
    currency = _CURRENCY.match(text)
    if currency and re.match(r"[\d.\\]", text[currency.end() :]):
        # What follows the amount may still be a number word: $7 million.
        value, rest = split_unit(text[currency.end() :])
        name = "dollar" if currency.group("dollar") else currency.group().strip("- .")
        return currency.group("sign") + value, Unit({name: 1}, rest.scale, rest.scale)
    minutes = _MINUTES.match(text)
    if minutes:
        return rf"({minutes['degrees']}+{minutes['minutes']}/60+{minutes['seconds'] or 0}/3600)", DEGREE
    primes = _PRIMES.match(text)
    if primes:
        return primes["value"], Unit({"'" * len(primes["primes"]): 1})
    degrees = _DEGREES.match(text)
    # In \\sin 30^\\circ the sign belongs to the function's argument.
    if degrees and not _FUNCTION.search(degrees.group("value")):
        scale = degrees.group("scale")
        return degrees.group("value"), Unit({f"degree {scale}": 1}) if scale else DEGREE
    compound = _compound(text)
    if compound is not None:
        return compound
    text = text.replace(DOLLAR, r"\text{dollar}")
    text = re.sub(r"\\mu ?\\text\{ ?", r"\\text{micro", re.sub(r"(?<=[\d)}]) ?\\Omega$", r" \\text{ohm}", text))
    match = _TRAILING.match(text)
    if match is None or not re.search(r"\d|\\(?:pi|frac|sqrt)|^[A-Za-z]{1,3}$", match.group("value")):
        return text, NO_UNIT
    if "\\text" not in match.group("unit") and not _is_plain_unit(match):
        return text, NO_UNIT
    parsed = _parse(match.group("unit"))
    return (text, NO_UNIT) if parsed is None else (match.group("value").strip(), parsed)


def _compound(text: str) -> tuple[str, Unit] | None:
    """One length or time in several units, in the first of them: 5 ft 6 in."""
    if _COMPOUND.fullmatch(text) is None:
        return None
    parts = [(number, _parse(unit)) for number, unit in _COMPOUND_PART.findall(text)]
    first = parts[0][1]
    if first is None or not first.dimensions:
        return None
    terms = []
    for number, unit in parts:
        if unit is None or unit.dimensions != first.dimensions:
            return None
        factor = unit.size / first.size
        terms.append(rf"{number}\cdot {factor.numerator}/{factor.denominator}")
    return f"({'+'.join(terms)})", first


def _is_plain_unit(match: re.Match[str]) -> bool:
    # 3x, 15cm and 2 ab are algebra unless a unit is meant: the words must be known, or be words behind a plain number.
    words = re.findall(r"[A-Za-z]+", match.group("unit").replace("\\cdot", " "))
    known = all(_is_known(word) for word in words)
    if not match.group("space") and any(word in _ALSO_PRODUCTS for word in words):
        return False
    value = match.group("value").strip()
    if not _PLAIN_VALUE.fullmatch(value):
        # Behind a number with pi or roots, ft is a unit and h may be a height; behind letters, ft may be a product.
        is_numeric = _NUMERIC_VALUE.fullmatch(value) is not None
        is_metric = bool(match.group("space")) and all(word in _METRIC for word in words)
        return known and all(len(word) > 1 for word in words) and (is_numeric or is_metric)
    if known:
        return bool(match.group("space")) or all(len(word) > 1 for word in words)
    return bool(match.group("space")) and any(len(word) > 2 for word in words)


def _is_known(word: str) -> bool:
    name = _canonical(word)
    return name in _KNOWN or name in _VOLUMES or name in _EXPANSIONS or name in _POWERS_BEFORE


def without_degrees(text: str) -> str | None:
    """A sum with angles such as `180^\\circ - x`, without its degree signs; None for anything else."""
    is_sum = "^\\circ" in text and split_unit(text)[1] == NO_UNIT and not re.search("'|\\\\text", text)
    return text.replace("^\\circ", "") if is_sum and not _FUNCTION.search(text) else None


def bare_unit(text: str) -> tuple[str, Unit]:
    """The value and the unit where letters at the end are read as one, whatever stands before them: `4r^{2} m^{2}`.

    Only a unit on the other side shows that this is meant.
    """
    match = _BARE.match(text)
    if match is None or not all(_is_known(word) for word in re.findall(r"[A-Za-z]+", match["unit"])):
        return text, NO_UNIT
    parsed = _parse(match["unit"])
    return (text, NO_UNIT) if parsed is None else (match["value"].strip(), parsed)


def _canonical(word: str) -> str:
    if word == "A":
        return "ampere"  # As opposed to the article.
    lowered = word if word == DOLLAR else word.lower()
    for candidate in (lowered, lowered.removesuffix("s")):
        if candidate in _ALIASES:
            return _ALIASES[candidate]
        if candidate in _KNOWN:
            return candidate
    return lowered.removesuffix("s") if len(lowered) > 2 else lowered


def _parse(text: str) -> Unit | None:
    text = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).replace("\\cdot", " ").replace("\\", " ")
    text = re.sub(r"[()$.,]", " ", re.sub(r"\bper\b", "/", text))
    for name, expansion in _EXPANSIONS.items():
        text = re.sub(rf"\b{name}\b", expansion, text)
    dimensions: dict[str, int] = {}
    size = scale = Fraction(1)
    prefix = 1
    for position, part in enumerate(text.split("/")):
        for word, power in re.findall(r"([A-Za-z\u00a4'-]+)(?: ?\^ ?\{? ?(-?\d))?", part):
            name = _canonical(word)
            exponent = prefix * int(power or 1) * (1 if position == 0 else -1)
            prefix = 1
            if word.lower() in _ARITHMETIC or (name in _POWERS_AFTER and not dimensions):
                return None
            if name in _POWERS_BEFORE:
                prefix = _POWERS_BEFORE[name]
            elif name in _POWERS_AFTER:
                dimensions = {key: value * _POWERS_AFTER[name] for key, value in dimensions.items()}
                size = size ** _POWERS_AFTER[name]
            elif name in _SCALES:
                scale *= Fraction(_SCALES[name]) ** exponent
            elif name in _VOLUMES:
                dimensions["length"] = dimensions.get("length", 0) + 3 * exponent
                size *= _VOLUMES[name] ** exponent
            elif name not in _EMPTY:
                dimension, factor = _KNOWN.get(name, (name, Fraction(1)))
                dimensions[dimension] = dimensions.get(dimension, 0) + exponent
                size *= factor**exponent
    return Unit({name: power for name, power in dimensions.items() if power}, size * scale, scale)
