"""`key=value` on the command line: parsed with hydra's grammar, checked against the schema, then applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from roll_core.config.keys import first_unknown, suggestion
from roll_core.config.section import Section
from roll_core.errors import Problem

# hydra's grammar has functions of its own and takes these for unknown ones; in a config they are device numbers.
_DEVICES = re.compile(r"^(\+{0,2})([\w.]+)=((?:list|range)\s*\(.*)$", re.DOTALL)


@dataclass(frozen=True)
class Override:
    """One assignment. `path` is empty for those that choose among included files, which hydra applies itself."""

    text: str
    path: tuple[str, ...]
    value: Any
    deletes: bool = False


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Overrides in order, and a problem for each that cannot be read."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        try:
            overrides.append(_parse(text))
        except _Unreadable as error:
            problems.append(Problem("", f"cannot read the override {text!r}: {error}", None, _advice(text)))
    return overrides, problems


def apply_overrides(config: DictConfig, overrides: Sequence[Override], model: type[Section]) -> list[Problem]:
    """Set the values in the config; a key that neither the schema nor the file has is a problem."""
    problems = []
    for override in overrides:
        if not override.path:
            continue
        dotted = ".".join(override.path)
        unknown = first_unknown(model, override.path)
        if unknown is not None and not _is_in(config, override.path):
            problems.append(_unknown(override, unknown, model))
            continue
        try:
            if override.deletes:
                _delete(config, override.path)
            else:
                OmegaConf.update(config, dotted, override.value, merge=True, force_add=True)
        except OmegaConfBaseException as error:
            reason = str(error).strip().splitlines()[0]
            problems.append(Problem(dotted, f"the override {override.text!r} cannot be applied: {reason}"))
    return problems


class _Unreadable(Exception):
    pass


def _parse(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override as Parsed
    from hydra.errors import HydraException

    devices = _DEVICES.match(text)
    if devices:
        return Override(text, tuple(devices[2].split(".")), devices[3])
    if "=" not in text and not text.startswith("~"):
        raise _Unreadable("there is no '=' in it")
    try:
        parsed: Parsed = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise _Unreadable(str(error).strip().splitlines()[0]) from None
    if parsed.is_sweep_override():
        raise _Unreadable("it lists several values, and a run has one")
    key = str(parsed.key_or_group)
    if "/" in key or parsed.package is not None or key.startswith("hydra."):
        return Override(text, (), None)
    return Override(text, tuple(key.split(".")), parsed.value(), deletes=parsed.is_delete())


def _advice(text: str) -> str:
    key, separator, value = text.partition("=")
    if not separator:
        return "write key=value, with dots between the parts of the key"
    if value.startswith("[") and value.endswith("]"):
        quoted = ",".join(f'"{item.strip().strip(chr(34))}"' for item in value[1:-1].split(","))
        return f"put items with special characters in quotes of their own: '{key}=[{quoted}]'"
    return f"put values with special characters in two pairs of quotes: '{key}=\"{value}\"'"


def _is_in(config: DictConfig, path: tuple[str, ...]) -> bool:
    node: Any = config
    for part in path:
        if not isinstance(node, DictConfig) or part not in node:
            return False
        node = node._get_node(part)
    return True


def _delete(config: DictConfig, path: tuple[str, ...]) -> None:
    parent = OmegaConf.select(config, ".".join(path[:-1])) if len(path) > 1 else config
    if isinstance(parent, DictConfig) and path[-1] in parent:
        del parent[path[-1]]


def _unknown(
    override: Override, found: tuple[tuple[str, ...], type[Section] | None, str], root: type[Section]
) -> Problem:
    path, section, key = found
    hint = suggestion(key, path, section, root) if section is not None else f"{'.'.join(path)} has no keys of its own"
    return Problem(".".join((*path, key)), f"unknown key in the override {override.text!r}", None, hint)
