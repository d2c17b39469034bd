"""What all contracts have in common: known gaps, needs that a backend may not meet, and deadlines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest

if TYPE_CHECKING:
    from roll_core.platforms import Ability

REQUIRE_DEVICE = "--roll-require-device"

Result = TypeVar("Result")
Test = TypeVar("Test", bound=Callable[..., Any])


class Contract:
    """Promises of a seam as tests. Subclass the contract of your kind and say what it is to be run on."""

    known_gaps: ClassVar[Mapping[str, str]] = {}
    """Promises not kept yet: the name of a test, without parameters, and why. Such a test must fail: when it
    passes, the gap has closed and the entry has to go."""
    backend: ClassVar[str] = ""
    """The name that a plugin offers it by. A class in the module `contracts` of a plugin's package that has this
    is what the suite runs for that name."""
    unavailable: ClassVar[str] = ""
    """Why nothing of this can be run here, such as a package that is not installed; empty where it can."""

    def abilities(self) -> frozenset[Ability]:
        """What the platform of these tests can do here and now; `@needs` asks."""
        return frozenset()

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _is_available(cls, request: pytest.FixtureRequest) -> None:
        if cls.unavailable:
            skip_or_fail(request.config, cls.unavailable)

    @pytest.fixture(autouse=True)
    def _gaps_and_needs(self, request: pytest.FixtureRequest) -> None:
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


def skip_or_fail(config: pytest.Config, reason: str) -> None:
    """Skip what needs something that is not here; under --roll-require-device that is a failure."""
    if config.getoption(REQUIRE_DEVICE, default=False):
        pytest.fail(f"{REQUIRE_DEVICE}: {reason}", pytrace=False)
    pytest.skip(reason)


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


def listed(names: Iterable[object], most: int = 4) -> str:
    """Names for a message: "a, b", "a, b, c, d and 7 more", or "none"."""
    shown = [str(name) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more or "none"
