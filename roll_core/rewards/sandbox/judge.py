"""Running tests against a program. Everything here runs in a forked process, apart from the program's.

A test passes when it was run to its end and nothing was raised; how a process ended says nothing.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import io
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roll_core.rewards.sandbox import minipytest, wire
from roll_core.rewards.sandbox.remote import Program
from roll_core.rewards.sandbox.wire import Lost

_NO_PYTHON = "the tests are no Python"
NO_TEST = "the tests hold no test"


@dataclass(frozen=True)
class Outcome:
    """What came of the tests: how many there were and passed, the first failure, and what is wrong with the tests."""

    passed: int = 0
    total: int = 0
    failure: str = ""
    broken: str = ""


class BrokenTests(Exception):
    """The tests cannot be run against any program."""


def tests_problem(codes: Sequence[str]) -> str | None:
    """What is wrong with test codes, as far as can be told without running them."""
    try:
        nodes = [node for code in codes for node in ast.parse(code, "tests.py").body]
    except (SyntaxError, ValueError) as error:
        return f"{_NO_PYTHON}: {error}"
    return None if any(_is_test(node) or _does_something(node) for node in nodes) else NO_TEST


def run_tests(program: Program | None, codes: Sequence[str], extra: dict[str, Any] | None = None) -> Outcome:
    """Run test codes: their `test_*` functions and classes where there are some, else each code as one test.

    A code that only defines and imports things holds no test.
    """
    passed, tests = 0, []
    sys.set_int_max_str_digits(0)
    for code in codes:
        try:
            tree = ast.parse(code, "tests.py")
            compiled = compile(code, "tests.py", "exec")
        except (SyntaxError, ValueError) as error:
            return Outcome(broken=f"{_NO_PYTHON}: {error}")
        tests += list(_tests_of(compiled, program, extra or {}, any(map(_does_something, tree.body))))
        # What a test defines must not outlive it: the next code is another file.
    for test in tests:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                test()
        except (BrokenTests, LookupError) as error:
            if isinstance(error, BrokenTests) or "fixture" in str(error):
                return Outcome(passed, len(tests), broken=str(error))
            return Outcome(passed, len(tests), _told(error))
        except minipytest.Skipped:
            pass
        except BaseException as error:
            return Outcome(passed, len(tests), _told(error))
        passed += 1
    return Outcome(passed, len(tests))


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("test")
    return isinstance(node, ast.ClassDef) and any(map(_is_test, node.body))


def _does_something(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    if isinstance(node, ast.Assert | ast.Raise | ast.Call):
        return True
    return any(map(_does_something, ast.iter_child_nodes(node)))


def _tests_of(
    code: types.CodeType, program: Program | None, extra: dict[str, Any], is_test: bool
) -> Iterator[Callable[[], Any]]:
    names = _namespace(program, extra)
    known = set(names)

    def load() -> None:
        exec(code, names)

    load_error: list[BaseException] = []
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            load()
        except BaseException as error:
            load_error.append(error)
    if load_error:

        def fail() -> None:
            raise load_error[0]

        yield fail
        return
    found = False
    for name, value in list(names.items()):
        if name in known and not name.startswith("test"):
            continue
        if isinstance(value, types.FunctionType) and name.startswith("test"):
            found = True
            yield from minipytest.calls(value, names)
        elif isinstance(value, type) and issubclass(value, unittest.TestCase):
            found = True
            yield from (_unit_test(value, method) for method in unittest.TestLoader().getTestCaseNames(value))
        elif isinstance(value, type) and name.startswith("Test"):
            for method in [method for method in vars(value) if method.startswith("test")]:
                found = True
                yield from _method_test(value, method, names)
    if is_test and not found:
        yield lambda: None


def _method_test(kind: type, method: str, names: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    one = kind()
    for prepare in ("setup_method", "setUp"):
        if hasattr(one, prepare):
            getattr(one, prepare)()
    function = vars(kind)[method]
    bound = getattr(one, method)
    if hasattr(function, "cases"):

        def with_cases(**given: Any) -> Any:
            return bound(**given)

        with_cases.__dict__.update(cases=function.cases, __signature__=inspect.signature(bound))
        yield from minipytest.calls(with_cases, names)
    else:
        yield from minipytest.calls(bound, names)


def _unit_test(kind: type[unittest.TestCase], method: str) -> Callable[[], None]:
    def run() -> None:
        result = unittest.TestResult()
        kind(method).run(result)
        for _case, trace in [*result.failures, *result.errors]:
            raise AssertionError(trace.strip().splitlines()[-1])

    return run


def _namespace(program: Program | None, extra: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "tests"}
    exec(wire.PRELUDE, names)
    solution = types.ModuleType("solution")
    if program is not None:
        for name in program.names:
            names[name] = solution.__dict__[name] = program.name(name)
    sys.modules["solution"] = solution
    sys.modules["pytest"] = minipytest.module()
    names["pytest"] = sys.modules["pytest"]

    def find(name: str, *args: Any, **keywords: Any) -> Any:
        try:
            return builtins.__import__(name, *args, **keywords)
        except ModuleNotFoundError:
            wanted = args[2] if len(args) > 2 and args[2] else ()
            if program is not None and all(one == "*" or one in program.names for one in wanted):
                return solution  # The tests call the program's file by a name of their own.
            raise

    names["__builtins__"] = {**vars(builtins), "__import__": find}
    return names | extra


def _told(error: BaseException) -> str:
    if isinstance(error, Lost):
        return f"the program did not answer: {error}"
    text = f"{type(error).__name__}: {error}".strip(": ")
    return text[:300]
