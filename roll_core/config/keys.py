"""Which keys a config may hold: unknown ones become problems with a suggestion, those without effect become notices."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from roll_core.config.role_sections import StrategyArgs
from roll_core.config.roles import RewardConfig
from roll_core.config.section import Section
from roll_core.errors import Problem

Path = tuple[str, ...]

UNKNOWN_KEY = "unknown key"
ANY_NAME = "*"
"""Stands in a path for the names of a mapping whose keys are free, such as the domains of `rewards`."""

_VARIABLES_WITHOUT_EFFECT = {
    "USE_MODELSCOPE": "models are read from local folders, nothing is downloaded",
    "MODEL_DOWNLOAD_TYPE": "models are read from local folders, nothing is downloaded",
}


@dataclass
class KeyReport:
    """A config with only known keys, and what was said about the others.

    `unknown` holds the names of refused keys. A key that was probably misspelt stands in `cleaned` under the
    name that was probably meant, so that rules about it speak of the value the user gave.
    """

    cleaned: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)


def check_keys(
    given: Mapping[str, Any],
    model: type[Section],
    *,
    referenced: frozenset[str] = frozenset(),
    included: frozenset[str] = frozenset(),
) -> KeyReport:
    """Compare a config's keys with a schema.

    Args:
        referenced: dotted paths that the config's own interpolations use; such a key is a variable and is fine.
        included: top-level keys that come from an included file only; unused ones get a notice, since such files
            serve several pipelines.
    """
    walk = _Walk(model, referenced, included)
    report = KeyReport()
    report.cleaned = walk.section(given, model, (), report)
    return report


def first_unknown(model: type[Section], path: Path, prefix: Path = ()) -> tuple[Path, type[Section] | None, str] | None:
    """The first key of a path that a schema does not have: where it stands, the section there, and the key.

    The section is None where a plain value was taken for a mapping. None means the whole path is known.
    """
    if not path or path[0] in model.keys_without_effect():
        return None
    key, rest = path[0], path[1:]
    if key not in model.model_fields:
        return prefix, model, key
    kind, inner = nested(model.model_fields[key].annotation)
    if inner is None:
        # Below a mapping that is handed on, every key is the business of whatever gets it.
        return None if kind == "free" or not rest else ((*prefix, key), None, rest[0])
    if kind == "many" and not (rest and rest[0] in inner.model_fields):
        return first_unknown(inner, rest[1:], (*prefix, key, *rest[:1]))
    return first_unknown(inner, rest, (*prefix, key))


def has_no_effect(model: type[Section], path: Path) -> str:
    """Why the key at a path does nothing, or one above it; empty for any other key."""
    if not path:
        return ""
    key, rest = path[0], path[1:]
    if key in model.keys_without_effect():
        return model.keys_without_effect()[key]
    kind, inner = nested(model.model_fields[key].annotation) if key in model.model_fields else ("", None)
    if inner is None:
        return ""
    return has_no_effect(inner, rest[1:] if kind == "many" and rest and rest[0] not in inner.model_fields else rest)


def suggestion(key: str, path: Path, model: type[Section], root: type[Section]) -> str:
    """What to do about an unknown key at a path inside `model`; empty where nothing comes to mind."""
    if model is StrategyArgs:
        return f"options of a strategy belong in {_dotted((*path, 'strategy_config', key))}"
    below = [place for place in places(root).get(key, ()) if _fits(place[: len(path)], path)]
    if below:
        return f"it belongs in {_dotted(_filled(below[0], path))}"
    close = closest_key(key, model)
    if close:
        return f"did you mean '{close}'?"
    elsewhere = places(root).get(key, ())
    if elsewhere:
        best = max(elsewhere, key=lambda place: _shared(place, path))
        return f"it belongs in {_dotted(_filled(best, path))}"
    near = difflib.get_close_matches(key, places(root), n=1, cutoff=0.85)
    if near:
        best = max(places(root)[near[0]], key=lambda place: _shared(place, path))
        return f"did you mean {_dotted(_filled(best, path))}?"
    if model is RewardConfig:
        return f"options of a reward of your own belong in {_dotted((*path, 'reward_args', key))}"
    return ""


def closest_key(key: str, model: type[Section]) -> str:
    """The key of a section that was probably meant; empty where none is near."""
    plain = {name.replace("_", ""): name for name in model.model_fields}
    stripped = key.lower().replace("_", "").replace("-", "")
    if stripped in plain:
        return plain[stripped]
    close = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.75)
    return close[0] if close else ""


def nested(annotation: Any) -> tuple[str, type[Section] | None]:
    """What lies below a field: ("one", section), ("many", section) for a mapping of them, ("free", None) for a
    mapping with any keys, ("", None) for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "one", annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return nested(arguments[0])
    if origin in (types.UnionType, typing.Union):
        found = [nested(part) for part in arguments if part is not type(None)]
        return next((one for one in found if one[1] is not None), next((one for one in found if one[0]), ("", None)))
    if origin is dict:
        kind, inner = nested(arguments[1])
        return ("many", inner) if kind == "one" else ("free", None)
    return "", None


@cache
def places(root: type[Section]) -> dict[str, tuple[Path, ...]]:
    """Every key of a schema, and the paths where it may stand."""
    found: dict[str, list[Path]] = {}
    for path in _paths(root, ()):
        found.setdefault(path[-1], []).append(path)
    return {key: tuple(paths) for key, paths in found.items()}


def _paths(model: type[Section], prefix: Path) -> Iterator[Path]:
    for name, info in model.model_fields.items():
        yield (*prefix, name)
        kind, inner = nested(info.annotation)
        if inner is not None:
            yield from _paths(inner, (*prefix, name) if kind == "one" else (*prefix, name, ANY_NAME))


def is_single(value: Mapping[str, Any], inner: type[Section]) -> bool:
    """Whether a mapping of named sections was written as one section without a name."""
    return any(key in inner.model_fields for key in value)


class _Walk:
    def __init__(self, root: type[Section], referenced: frozenset[str], included: frozenset[str]) -> None:
        self.root, self.included = root, included
        # `${a.b}` makes a variable of a and of everything above and below it.
        self.referenced = {tuple(one.split(".")) for one in referenced}

    def section(self, given: Mapping[Any, Any], model: type[Section], path: Path, report: KeyReport) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        ignored = model.keys_without_effect()
        for raw_key, value in given.items():
            key = str(raw_key)
            here = (*path, key)
            if key in model.model_fields:
                self._known(cleaned, key, value, model, here, report)
            elif self._is_variable(here):
                continue
            elif key in ignored:
                report.notices.append(f"{_dotted(here)}: has no effect; {ignored[key]}")
            else:
                self._unknown(cleaned, key, value, model, path, given, report)
        return cleaned

    def _known(
        self, cleaned: dict[str, Any], key: str, value: Any, model: type[Section], here: Path, report: KeyReport
    ) -> None:
        kind, inner = nested(model.model_fields[key].annotation)
        if inner is not None and value is None:
            return
        if inner is not None and isinstance(value, Mapping):
            if kind == "one":
                cleaned[key] = self.section(value, inner, here, report)
            elif is_single(value, inner):
                cleaned[key] = {key: self.section(value, inner, here, report)}
            else:
                cleaned[key] = self._named(value, inner, here, report)
            return
        cleaned[key] = value
        if isinstance(value, Mapping):
            report.notices += _free_notices(key, value, here)

    def _named(self, value: Mapping[Any, Any], inner: type[Section], here: Path, report: KeyReport) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for name, one in value.items():
            # `rewards: {ifeval: ~}` is a reward with all defaults.
            one = {} if one is None else one
            is_mapping = isinstance(one, Mapping)
            named[str(name)] = self.section(one, inner, (*here, str(name)), report) if is_mapping else one
        return named

    def _unknown(
        self,
        cleaned: dict[str, Any],
        key: str,
        value: Any,
        model: type[Section],
        path: Path,
        given: Mapping[Any, Any],
        report: KeyReport,
    ) -> None:
        close = closest_key(key, model)
        if not path and key in self.included and not close:
            report.notices.append(f"{key}: has no effect; it comes from an included file and nothing refers to it")
            return
        hint = suggestion(key, path, model, self.root)
        report.problems.append(Problem(_dotted((*path, key)), UNKNOWN_KEY, None, hint))
        report.unknown.add(key)
        fits = bool(close) and (isinstance(value, Mapping) or nested(model.model_fields[close].annotation)[1] is None)
        if fits and hint.startswith("did you mean") and close not in given:
            self._known(cleaned, close, value, model, (*path, close), report)

    def _is_variable(self, here: Path) -> bool:
        return any(used[: len(here)] == here or here[: len(used)] == used for used in self.referenced)


def _free_notices(key: str, value: Mapping[Any, Any], here: Path) -> Iterator[str]:
    ignored = {"system_envs": _VARIABLES_WITHOUT_EFFECT, "strategy_config": StrategyArgs.options_without_effect}
    for name, reason in ignored.get(key, {}).items():
        if name in value:
            yield f"{_dotted((*here, name))}: has no effect; {reason}"


def _dotted(path: Path) -> str:
    return ".".join(path)


def _fits(place: Path, path: Path) -> bool:
    return len(place) == len(path) and all(left in (right, ANY_NAME) for left, right in zip(place, path, strict=True))


def _shared(place: Path, path: Path) -> int:
    count = 0
    for left, right in zip(place, path, strict=False):
        if left not in (right, ANY_NAME):
            break
        count += 1
    return count


def _filled(place: Path, path: Path) -> Path:
    """A path with the names that the user's own path has where the schema leaves them free."""
    filled = [path[at] if key == ANY_NAME and at < len(path) else key for at, key in enumerate(place)]
    return tuple("<name>" if key == ANY_NAME else key for key in filled)
