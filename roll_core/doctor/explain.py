"""What an error means: core's own list of known errors, then every installed platform's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roll_core.doctor.known import KNOWN_ERRORS
from roll_core.findings import KnownError
from roll_core.plugins import Registry
from roll_core.resolve import Resolved


@dataclass(frozen=True)
class Explanation:
    """A known error that a text shows, and who knows it."""

    source: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Answer:
    """Every explanation that fits, and a sentence for each platform that could not be asked."""

    explanations: tuple[Explanation, ...]
    unasked: tuple[str, ...]


def explain(text: str, registry: Registry, platform: str | None = None) -> Answer:
    """Look an error up. Platforms come first: where a text is theirs, what core says of it is more general.

    Args:
        platform: ask this platform only, and core.
    """
    found: list[Explanation] = []
    unasked: list[str] = []
    for record, backend in registry.offers("platform"):
        if platform is not None and backend.name != platform:
            continue
        try:
            known = _known_by(Resolved("platform", record, backend))
            fitting = [one for one in known if one.explains(text)]
        except Exception as error:
            # Code of a plugin, which may not be importable here at all: the others still answer.
            unasked.append(f"platform {backend.name} ({record.name}) could not be asked: {_one_line(error)}")
            continue
        found += [Explanation(f"platform {backend.name}", one.cause, one.remedy) for one in fitting]
    found += [Explanation("roll_core", one.cause, one.remedy) for one in KNOWN_ERRORS if one.explains(text)]
    return Answer(tuple(_unique(found)), tuple(unasked))


def _known_by(resolved: Resolved) -> list[KnownError]:
    return list(resolved.load()().known_errors())


def _unique(found: list[Explanation]) -> Iterator[Explanation]:
    # Two platforms of one plugin may know the same error.
    seen: set[tuple[str, str]] = set()
    for one in found:
        if (one.cause, one.remedy) not in seen:
            seen.add((one.cause, one.remedy))
            yield one


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
