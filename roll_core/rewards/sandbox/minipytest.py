"""The part of pytest that tests of small programs use, for the process in which they are judged.

Not pytest itself: importing that takes longer than most programs run, and it loads plugins.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Failed(AssertionError):
    """A test said that it failed."""


class Skipped(Exception):
    """A test said that it does not apply."""


class raises:  # noqa: N801 (pytest's name)
    """The block, or the call, must raise one of these."""

    def __init__(self, expected: Any, *args: Any, match: str | None = None, **keywords: Any) -> None:
        self.expected, self.match = expected, match
        self.value: BaseException | None = None
        if args:
            with self:
                args[0](*args[1:], **keywords)

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _trace: Any) -> bool:
        if error is None:
            raise Failed(f"did not raise {self.expected}")
        if not isinstance(error, self.expected):
            return False
        if self.match is not None and not re.search(self.match, str(error)):
            raise Failed(f"raised {error!r}, which does not match {self.match!r}")
        self.value, self.type = error, kind
        return True


class approx:  # noqa: N801 (pytest's name)
    """A number, or a list, tuple or dictionary of them, up to a tolerance."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> None:
        self.expected, self.nan_ok = expected, nan_ok
        self.rel = (1e-6 if abs is None else 0.0) if rel is None else rel
        self.abs = 1e-12 if abs is None else abs

    def __eq__(self, other: object) -> bool:
        return self._close(self.expected, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _close(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, Mapping):
            same = isinstance(found, Mapping) and expected.keys() == found.keys()
            return same and all(self._close(value, found[key]) for key, value in expected.items())
        if isinstance(expected, list | tuple):
            same = isinstance(found, list | tuple) and len(found) == len(expected)
            return same and all(map(self._close, expected, found))
        if isinstance(expected, bool) or not isinstance(expected, int | float | complex):
            return bool(expected == found)
        if isinstance(found, bool) or not isinstance(found, int | float | complex):
            return bool(expected == found)
        if isinstance(expected, complex) or isinstance(found, complex):
            return abs(expected - found) <= max(self.rel * abs(expected), self.abs)
        if math.isnan(expected) or math.isnan(found):
            return self.nan_ok and math.isnan(expected) and math.isnan(found)
        return expected == found or abs(expected - found) <= max(self.rel * abs(expected), self.abs)


class _Marks:
    """`mark.parametrize` sets cases; every other mark changes nothing."""

    def parametrize(self, names: str | list[str], values: Any, **_: Any) -> Callable[[Any], Any]:
        keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)
        cases = []
        for value in values:
            given = value.values if isinstance(value, Param) else (value if len(keys) > 1 else (value,))
            cases.append(dict(zip(keys, given, strict=True)))

        def mark(function: Any) -> Any:
            function.cases = [*getattr(function, "cases", ()), cases]
            return function

        return mark

    def __getattr__(self, name: str) -> Any:
        def mark(*args: Any, **_: Any) -> Any:
            if len(args) == 1 and callable(args[0]):
                return args[0]
            return lambda function: function

        return mark


class Param:
    """One case of `parametrize`."""

    def __init__(self, *values: Any, **_: Any) -> None:
        self.values = values


def fixture(function: Any = None, **_: Any) -> Any:
    """A function whose result tests get by its name."""
    if function is None:
        return fixture
    function.is_fixture = True
    return function


def module() -> types.ModuleType:
    """A module that tests import as pytest."""

    def fail(reason: str = "", **_: Any) -> None:
        raise Failed(reason)

    def skip(reason: str = "", **_: Any) -> None:
        raise Skipped(reason)

    made = types.ModuleType("pytest")
    made.__dict__.update(
        raises=raises, approx=approx, mark=_Marks(), param=Param, fixture=fixture, fail=fail, skip=skip
    )
    return made


def calls(function: Callable[..., Any], names: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
    """The calls that a test function stands for: one, or one for each of its cases."""
    for parts in itertools.product(*getattr(function, "cases", ())):
        given: dict[str, Any] = {}
        for part in parts:
            given |= part

        def call(given: dict[str, Any] = given) -> Any:
            open_fixtures: list[Any] = []
            try:
                return function(**_arguments(function, given, names, open_fixtures))
            finally:
                for generator in reversed(open_fixtures):
                    next(generator, None)

        yield call


def _arguments(
    function: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, Any], opened: list[Any]
) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in given:
            wanted[name] = given[name]
        elif getattr(names.get(name), "is_fixture", False):
            value = names[name](**_arguments(names[name], {}, names, opened))
            if inspect.isgenerator(value):
                opened.append(value)
                value = next(value)
            wanted[name] = value
        elif parameter.default is inspect.Parameter.empty:
            raise LookupError(f"the test wants a fixture '{name}', which is not known here")
    return wanted
