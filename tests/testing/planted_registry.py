"""Deliberate mistakes: what each is, and the test of a contract that must catch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roll_core.testing.contract import Contract


@dataclass(frozen=True)
class Edit:
    """A text in a file of the package that becomes another one; every copy has its own package name."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """A mistake: a backend class that does one thing wrong, or an edit to a copy of the package."""

    what: str
    contract: type[Contract]
    test: str
    backend: type[Any] | None = None
    edit: Edit | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Members of the contract, such as shorter deadlines."""


FAULTS: list[Fault] = []


def planted(what: str, contract: type[Contract], test: str, **settings: Any) -> Callable[[type[Any]], type[Any]]:
    """Registers the class it is written over as a mistake."""

    def register(backend: type[Any]) -> type[Any]:
        FAULTS.append(Fault(what, contract, test, backend=backend, settings=settings))
        return backend

    return register


def edited(what: str, contract: type[Contract], test: str, file: str, old: str, new: str) -> None:
    """Registers a change to a file of the package as a mistake."""
    FAULTS.append(Fault(what, contract, test, edit=Edit(file, old, new)))
