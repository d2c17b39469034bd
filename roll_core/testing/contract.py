"""What all contracts have in common: known gaps, needs that a backend may not meet, and deadlines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest

if TYPE_CHECKING:
    from roll_core.platforms import Ability

Result = TypeVar("Result")
Test = TypeVar("Test", bound=Callable[..., Any])


class Contract:
    """Promises of a seam as tests. Subclass the contract of your kind and say what it is to be run on."""

    known_gaps: ClassVar[Mapping[str, str]] = {}
    """Promises not kept yet: the name of a test, without parameters, and why. Such a test must fail: when it
    passes, the gap has closed and the entry has to go."""

    def abilities(self) -> frozenset[Ability]:
        """What the platform of these tests can do here and now; `@needs` asks."""
        return frozenset()

    @pytest.fixture(autouse=True)
    def _gaps_and_needs(self, request: pytest.FixtureRequest) -> None:
        """Skips what the backend does not claim, and expects what is known to fail."""
        test = request.function
        for ability in getattr(test, "needed_abilities", ()):
            if ability not in self.abilities():
                pytest.skip(f"not claimed by abilities(): {ability.name}, {ability.value}")
        reason = self.known_gaps.get(test.__name__)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def needs(*abilities: Ability) -> Callable[[Test], Test]:
    """Marks a test of something that only some platforms claim; it is skipped where `abilities()` lacks one."""

    def mark(test: Test) -> Test:
        test.needed_abilities = abilities  # type: ignore[attr-defined]
        return test

    return mark


def within(seconds: float, what: str, function: Callable[[], Result]) -> Result:
    """The result of a call that must end in time; it fails the test otherwise and leaves the call behind."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True, name=what)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        pytest.fail(f"{what} did not end within {seconds:g} s", pytrace=False)
    return results[0]


def listed(names: Any) -> str:
    """Names for a message: "a, b", or "none"."""
    return ", ".join(str(name) for name in names) or "none"
