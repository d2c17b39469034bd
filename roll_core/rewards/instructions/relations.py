"""How many of something an instruction asks for: a number and a relation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

AROUND = 0.1
"""A count is around a number when it is at most a tenth of it away, or at most one."""


class BadInstruction(Exception):
    """An instruction that cannot be checked: it is unknown, or its arguments are missing or make no sense."""


_LARGEST = 1e9
_RELATIONS = ("less than", "at most", "at least", "more than", "around", "exactly")


def holds(count: int, relation: str, number: int) -> bool:
    """Whether a count has the relation to the number.

    Raises:
        BadInstruction: there is no such relation.
    """
    name = " ".join(str(relation).lower().split())
    if name not in _RELATIONS:
        raise BadInstruction(f"no relation {relation!r}; there are: {', '.join(_RELATIONS)}")
    return {
        "less than": count < number,
        "at most": count <= number,
        "at least": count >= number,
        "more than": count > number,
        "around": abs(count - number) <= max(1, round(AROUND * number)),
        "exactly": count == number,
    }[name]


class Arguments:
    """An instruction's arguments, read with messages. Those that are null count as not given."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self.given = {key: value for key, value in given.items() if value is not None}

    def value(self, key: str) -> Any:
        """An argument as it stands.

        Raises:
            BadInstruction: it was not given. Nothing is drawn at random in its place.
        """
        if key not in self.given:
            raise BadInstruction(f"{self.name} needs {key!r}; it was given {', '.join(self.given) or 'nothing'}")
        return self.given[key]

    def number(self, key: str) -> int:
        """A whole number that is not negative; data sets also write it as text or as 3.0."""
        value = self.value(key)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not (0 <= number <= _LARGEST and number.is_integer()):
            raise BadInstruction(f"{self.name}: {key} must be a whole number, found {value!r:.100}")
        return int(number)

    def text(self, key: str) -> str:
        """A text that is not blank."""
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            raise BadInstruction(f"{self.name}: {key} must be a text, found {value!r:.100}")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts; a single text is a list of one."""
        value = self.value(key)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list | tuple) or not values:
            raise BadInstruction(f"{self.name}: {key} must be a list of texts, found {value!r:.100}")
        if not all(isinstance(one, str) and one.strip() for one in values):
            raise BadInstruction(f"{self.name}: {key} must hold texts only, found {value!r:.100}")
        return list(values)

    def relation(self, key: str, default: str | None = None) -> str:
        """A relation's name."""
        relation = self.text(key) if default is None or key in self.given else default
        holds(0, relation, 0)
        return relation
