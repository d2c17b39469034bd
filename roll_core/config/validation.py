"""From a plain mapping to a config object, with every problem found on the way, in sentences."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from roll_core.config.keys import UNKNOWN_KEY, check_keys
from roll_core.config.pipeline import BaseConfig
from roll_core.errors import Problem
from roll_core.trackers.redact import is_secret_key

C = TypeVar("C", bound=BaseConfig)

_SENTENCES = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "extra_forbidden": UNKNOWN_KEY,
    "missing": "must be given",
    "none_required": "must be left out",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "must be at least {}"),
    "greater_than": ("gt", "must be more than {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "less_than": ("lt", "must be less than {}"),
}
_SHOWN = 200


@dataclass
class Validated(Generic[C]):
    """A config, if one could be made, and what is wrong with the input.

    Where `problems` is not empty, the config was made without the values they are about: it serves to look for
    more problems, and is not what the user wrote. `suspect` holds the names of those keys.
    """

    config: C | None
    problems: list[Problem] = field(default_factory=list)
    suspect: set[str] = field(default_factory=set)


def validate(
    given: Mapping[str, Any],
    model: type[C],
    *,
    referenced: frozenset[str] = frozenset(),
    included: frozenset[str] = frozenset(),
) -> Validated[C]:
    """Make a config object from a mapping. Its `notices` are filled in."""
    report = check_keys(given, model, referenced=referenced, included=included)
    problems, suspect = list(report.problems), set(report.unknown)
    cleaned = report.cleaned
    config: C | None = None
    while True:
        try:
            config = model.model_validate(cleaned)
            break
        except ValidationError as error:
            found = _problems(error, cleaned)
            problems += found.values()
            suspect |= {path[-1] for path in found if path}
            # Every round takes at least one value out, so this ends; a fault of the whole cannot be taken out.
            if not found or () in found:
                break
            cleaned = _without(cleaned, list(found))
    if config is not None:
        config.notices.extend(report.notices)
    return Validated(config, problems, suspect)


def option_problems(options: Mapping[str, Any], model: type[BaseModel], path: str, owner: str) -> list[Problem]:
    """What is wrong with the options of a strategy or transport, which is called `owner`, by its own schema."""
    try:
        model.model_validate(dict(options))
    except ValidationError as error:
        return [
            _option_problem(inner, problem, model, path, owner) for inner, problem in _problems(error, options).items()
        ]
    return []


def _option_problem(inner: tuple[str, ...], problem: Problem, model: type[BaseModel], path: str, owner: str) -> Problem:
    where = ".".join((path, *inner))
    if problem.rule != UNKNOWN_KEY:
        return Problem(where, problem.rule, problem.value, problem.hint)
    known = list(model.model_fields) if len(inner) == 1 else []
    close = difflib.get_close_matches(inner[-1], known, n=1, cutoff=0.7)
    listed = f"it has: {', '.join(known)}" if known else ""
    return Problem(where, f"{owner} has no such option", None, f"did you mean '{close[0]}'?" if close else listed)


def _problems(error: ValidationError, given: Mapping[str, Any]) -> dict[tuple[str, ...], Problem]:
    grouped: dict[tuple[str, ...], list[Any]] = {}
    for detail in error.errors(include_url=False):
        grouped.setdefault(_existing(detail["loc"], given), []).append(detail)
    return {path: _problem(path, details, given) for path, details in grouped.items()}


def _problem(path: tuple[str, ...], details: Sequence[Any], given: Mapping[str, Any]) -> Problem:
    sentences = list(dict.fromkeys(_sentence(detail) for detail in details))
    rule = sentences[0] + "".join(f", or {sentence.removeprefix('must be ')}" for sentence in sentences[1:])
    value = _value(path, given)
    hint = next((hint for detail in details if (hint := _literal_hint(detail, value))), "")
    return Problem(".".join(path), rule, _shown(path, value), hint)


def _sentence(detail: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        return f"must be one of: {str(context['expected']).replace(' or ', ', ').replace(chr(39), '')}"
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        return sentence.format(f"{context[name]:g}")
    return _SENTENCES.get(kind) or str(detail["msg"])


def _literal_hint(detail: Any, value: Any) -> str:
    if detail["type"] != "literal_error" or not isinstance(value, str):
        return ""
    choices = str(detail["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
    close = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else ""


def _existing(location: Sequence[int | str], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The part of pydantic's location that the user wrote: it also names the branches of a union."""
    path: list[str] = []
    current: Any = given
    for part in location:
        if isinstance(current, Mapping) and part in current:
            current = current[part]
            path.append(str(part))
        elif isinstance(current, list) and isinstance(part, int) and part < len(current):
            # A list is refused as a whole; which item was wrong stands in the message's value.
            break
    return tuple(path)


def _value(path: tuple[str, ...], given: Mapping[str, Any]) -> Any:
    current: Any = given
    for part in path:
        current = current[part]
    return current


def _shown(path: tuple[str, ...], value: Any) -> Any:
    if any(is_secret_key(part) for part in path):
        return "(hidden)"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(str, value))}" if value else "an empty mapping"
    text = repr(value)
    return value if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _without(given: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    copy = dict(given)
    for path in paths:
        level = copy
        for part in path[:-1]:
            level[part] = dict(level[part])
            level = level[part]
        level.pop(path[-1], None)
    return copy
