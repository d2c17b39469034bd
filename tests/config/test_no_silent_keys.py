"""Every key that an RLVR config may hold is read by somebody, refused, or told to have no effect."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.config import unavailable
from roll_core.config.keys import nested
from roll_core.config.pipeline import RolloutMock, RouterArguments, TransferBackend
from roll_core.config.role_sections import SequencePackingArgs
from roll_core.config.rules import unused
from roll_core.config.schema import RLVRConfig
from roll_core.config.section import Section

CORE = Path(unavailable.__file__).parents[1]
TABLES = (Path(unavailable.__file__), Path(unused.__file__))


def sections(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for info in model.model_fields.values():
        _kind, inner = nested(info.annotation)
        if inner is not None:
            yield from sections(inner)


def names_read() -> set[str]:
    """Attributes that code asks for, and texts that may be names of attributes."""
    found = set()
    for path in CORE.rglob("*.py"):
        if path in TABLES:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def names_told() -> set[str]:
    refused = {
        one.key
        for table in vars(unavailable).values()
        if isinstance(table, tuple)
        for one in table
        if isinstance(one, unavailable.Unavailable)
    }
    tables = (table for name, table in vars(unused).items() if name.isupper() and isinstance(table, dict))
    return refused.union(*tables)


TOLD_AS_A_WHOLE = (RolloutMock, RouterArguments, SequencePackingArgs, TransferBackend)
"""Sections that are refused, or have no effect, whatever stands in them."""


def test_no_key_is_ignored_silently() -> None:
    known = names_read() | names_told()
    silent = {
        f"{model.__name__}.{key}"
        for model in sections(RLVRConfig)
        if model not in TOLD_AS_A_WHOLE
        for key in model.model_fields
        if key not in known
    }
    assert silent == set()


@pytest.mark.parametrize("name", ["PIPELINE", "ROLE", "MODEL", "TRAINING", "DATA", "SAMPLING", "REWARD", "CHECKPOINT"])
def test_every_key_without_effect_is_a_key(name: str) -> None:
    keys = {key for model in sections(RLVRConfig) for key in model.model_fields}
    assert set(getattr(unused, name)) <= keys
