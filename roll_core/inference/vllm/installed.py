"""What can be told of the installed vLLM without importing it, which takes ten seconds."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

OLDEST, NEWEST = (0, 23), (0, 32)
"""The first and last versions with what this strategy uses. The tests run 0.32.0; of the others the source was read."""


def folder() -> Path | None:
    """Where the package is; None where it is not installed."""
    found = importlib.util.find_spec("vllm")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else None


def version() -> str | None:
    """The version of the installed package; None where there is none or it does not say."""
    place = folder()
    file = place / "_version.py" if place is not None else None
    if file is None or not file.is_file():
        return None
    said = re.search(r"^__version__\s*=.*?['\"]([^'\"]+)['\"]", file.read_text(encoding="utf-8"), re.MULTILINE)
    return said[1] if said else None


def is_supported(text: str) -> bool:
    """Whether a version is in the range that is supported."""
    numbers = re.match(r"(\d+)\.(\d+)", text)
    return numbers is not None and OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST


def supported_range() -> str:
    """The range, in pip's words."""
    return f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"


def argument_names() -> frozenset[str]:
    """Names of the installed engine's own arguments, read from its source; empty where it is not installed."""
    place = folder()
    return frozenset() if place is None else _fields_in(place / "engine" / "arg_utils.py")


@cache
def _fields_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("EngineArgs")]
    fields = [field for node in classes for field in node.body if isinstance(field, ast.AnnAssign)]
    return frozenset(field.target.id for field in fields if isinstance(field.target, ast.Name))
