"""What a check of the machine found, and what is known about errors that users meet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """How bad a finding is; `roll doctor` exits with the worst one's number."""

    OK = 0
    WARNING = 1
    ERROR = 2


class Seen(NamedTuple):
    """What one look at the machine found: a finding that has no subject yet."""

    level: Level
    found: str
    remedy: str = ""


def well(found: str) -> Seen:
    """Nothing to do."""
    return Seen(Level.OK, found)


@dataclass(frozen=True)
class Finding:
    """One thing looked at on this machine: `found` says what it is, `remedy` what to do where it is not well."""

    level: Level
    subject: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class KnownError:
    """An error that users meet: text that shows it (regular expressions, any of them), its cause and its remedy."""

    patterns: tuple[str, ...]
    cause: str
    remedy: str

    def explains(self, text: str) -> bool:
        """Whether this is the error that a text, such as a traceback, shows."""
        return any(re.search(pattern, text, re.IGNORECASE) for pattern in self.patterns)
