"""Values that refer to others, `${a.b}`: which keys they use, and every one that leads nowhere."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from roll_core.errors import Problem

_REFERENCE = re.compile(r"\$\{\s*([^\s${}:]+)\s*\}")


def referenced_keys(config: DictConfig) -> frozenset[str]:
    """Dotted paths that interpolations of the config refer to."""
    found: set[str] = set()
    for path, text in _texts(OmegaConf.to_container(config, resolve=False), ()):
        for reference in _REFERENCE.findall(text):
            found.add(_absolute(reference, path))
    return frozenset(found)


def resolved(config: DictConfig) -> tuple[dict[str, Any], list[Problem]]:
    """The config as plain values, and a problem for each value that refers to what is not there or is `???`.

    Such values are left out.
    """
    problems: list[Problem] = []
    names = sorted(_dotted_keys(config, ""))
    plain = _plain(config, "", problems, names)
    assert isinstance(plain, dict)
    return plain, problems


_LEFT_OUT = object()


def _plain(node: Any, path: str, problems: list[Problem], names: list[str]) -> Any:
    if isinstance(node, DictConfig):
        values = {key: _value(node, key, _join(path, key), problems, names) for key in node}
        return {key: value for key, value in values.items() if value is not _LEFT_OUT}
    if isinstance(node, ListConfig):
        items = [_value(node, at, f"{path}[{at}]", problems, names) for at in range(len(node))]
        return [item for item in items if item is not _LEFT_OUT]
    return node


def _value(node: DictConfig | ListConfig, key: Any, path: str, problems: list[Problem], names: list[str]) -> Any:
    if OmegaConf.is_missing(node, key):
        problems.append(
            Problem(path, "is '???' and must be set", None, f"{path}=... on the command line, or in the file")
        )
        return _LEFT_OUT
    try:
        value = node[key]
    except (OmegaConfBaseException, RecursionError) as error:
        problems.append(_broken(node, key, path, error, names))
        return _LEFT_OUT
    return _plain(value, path, problems, names)


def _broken(node: DictConfig | ListConfig, key: Any, path: str, error: Exception, names: list[str]) -> Problem:
    raw = node._get_node(key)
    text = str(raw._value()) if raw is not None and hasattr(raw, "_value") else ""
    if isinstance(error, RecursionError) or "Recursive interpolation" in str(error):
        return Problem(path, f"{text} refers to itself", None, "break the circle")
    missing = next((one for one in _REFERENCE.findall(text) if one.lstrip(".") not in names), "")
    others = [name for name in names if name != path]
    close = difflib.get_close_matches(missing, others, n=1, cutoff=0.6) if missing else []
    if missing:
        hint = f"did you mean ${{{close[0]}}}?" if close else f"define {missing}, or write the value itself"
        return Problem(path, f"refers to ${{{missing}}}, which is not in this config", text, hint)
    first = str(error).strip().splitlines()[0]
    reason = first.rpartition("while resolving interpolation: ")[2].strip('"')
    hint = ""
    if "Unsupported interpolation type" in reason:
        hint = "${oc.env:NAME,default} is a variable of the environment, ${a.b} another key; nothing is computed"
    elif "Environment variable" in reason:
        hint = "set the variable, or write what holds without it: ${oc.env:NAME,default}"
    return Problem(path, f"cannot be worked out: {reason}", text, hint)


def _texts(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _texts(value, (*path, str(key)))
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield from _texts(value, (*path, str(at)))
    elif isinstance(node, str):
        yield path, node


def _absolute(reference: str, path: tuple[str, ...]) -> str:
    """An absolute path for `${..sibling}`: one dot is the mapping that holds the value, each further one its parent."""
    stripped = reference.lstrip(".")
    dots = len(reference) - len(stripped)
    plain = re.sub(r"\[([^\]]+)\]", r".\1", stripped)
    return ".".join([*path[: len(path) - dots], plain]) if dots else plain


def _dotted_keys(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for key in node:
            here = _join(path, key)
            yield here
            child = node._get_node(key)
            if isinstance(child, DictConfig) and not child._is_interpolation() and not child._is_none():
                yield from _dotted_keys(child, here)


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)
