"""What can be told of the installed SGLang without importing it, which loads compiled code for a device."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path

SUPPORTED = ">=0.5.23,<0.6"
"""Versions with what this strategy uses: update sessions came late in 0.5. The source that was read is 0.5.23."""


def folder() -> Path | None:
    """Where the package is; None where it is not installed."""
    found = importlib.util.find_spec("sglang")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else None


def version() -> str | None:
    """The version in the installed package's metadata; None where there is none."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def is_supported(text: str) -> bool:
    """Whether a version is in the range that is supported."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(SUPPORTED).contains(text, prereleases=True)


def argument_names() -> frozenset[str]:
    """Names of the installed engine's own arguments, read from its source; empty where it is not installed."""
    place = folder()
    files = sorted((place / "srt" / "arg_groups" / "fields").glob("*.py")) if place is not None else []
    return frozenset().union(*(fields_in(file.read_text(encoding="utf-8")) for file in files))


@cache
def fields_in(source: str) -> frozenset[str]:
    """Fields of the classes in a source file that SGLang puts together to its ServerArgs."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    fields = [
        field.target.id
        for node in classes
        if any(isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "_NS_PATH" for line in node.body)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    return frozenset(fields)
