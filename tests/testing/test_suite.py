"""The suite and the options of pytest: what is skipped, what is expected to fail, and what other projects notice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.testing.contract import listed, within
from roll_core.testing.fresh import HEAVY, in_fresh_interpreter

CLASSES = """
from roll_core.platforms import Ability
from roll_core.testing.contract import Contract, needs


class TestGaps(Contract):
    known_gaps = {"test_open": "not built yet", "test_closed": "not built yet"}

    def test_open(self):
        assert False

    def test_closed(self):
        pass


class TestNeeds(Contract):
    def abilities(self):
        return frozenset({Ability.BF16})

    @needs(Ability.BF16)
    def test_claimed(self):
        pass

    @needs(Ability.SLEEP)
    def test_not_claimed(self):
        assert False


class TestAway(Contract):
    unavailable = "there is no such device"

    def test_something(self):
        assert False
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True).stdout


def test_gaps_are_strict_and_needs_are_skipped_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CLASSES)
    shown = run_pytest(tmp_path)
    assert "XFAIL test_it.py::TestGaps::test_open - not built yet" in shown
    assert "FAILED test_it.py::TestGaps::test_closed - [XPASS(strict)] not built yet" in shown
    assert "PASSED test_it.py::TestNeeds::test_claimed" in shown
    assert re.search(r"SKIPPED .* not claimed by abilities\(\): SLEEP, free an engine's device memory", shown)
    assert re.search(r"SKIPPED .* there is no such device", shown)
    required = run_pytest(tmp_path, "--roll-require-device", "-k", "TestAway")
    assert "--roll-require-device: there is no such device" in required and "1 error" in required


def test_the_suite_asks_for_a_plugin_and_knows_those_there_are(tmp_path: Path) -> None:
    suite = ("--pyargs", "roll_core.testing.suite")
    assert re.search(r"--roll-plugin NAME\s.*installed: roll_core", run_pytest(tmp_path, *suite), re.DOTALL)
    shown = run_pytest(tmp_path, *suite, "--roll-plugin", "roll_demmo")
    assert "no plugin named 'roll_demmo'" in shown and "try: pip install roll-demmo" in shown


def test_the_end_says_what_was_run_and_why_the_rest_was_not(tmp_path: Path) -> None:
    shown = run_pytest(tmp_path, "--pyargs", "roll_core.testing.suite", "--roll-plugin", "roll_cuda", "-k", "rocm")
    summary = shown[shown.index("contracts of roll_cuda") :].splitlines()
    assert any(re.fullmatch(r"plugin roll_cuda: \d+ passed", line) for line in summary), summary
    assert any(re.match(r"platform rocm: \d+ passed", line) for line in summary), summary


def test_other_projects_do_not_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    loaded = in_fresh_interpreter(
        "import sys, os, pytest\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "code = pytest.main(['-q', '-p', 'no:cacheprovider', 'test_nothing.py'])\n"
        "result = [int(code), sorted(sys.modules)]"
    )
    assert loaded[0] == 0
    assert "roll_core.testing.pytest_plugin" in loaded[1], "roll-core is not installed with its entry point for pytest"
    assert {name.partition(".")[0] for name in loaded[1]} & HEAVY == set()
    own = {name for name in loaded[1] if name.startswith("roll_core.")}
    assert own == {
        "roll_core._version",
        "roll_core.backend",
        "roll_core.testing",
        "roll_core.testing.pytest_plugin",
    }


def test_what_does_not_end_fails_by_name() -> None:
    import threading

    forever = threading.Event()
    with pytest.raises(pytest.fail.Exception, match=r"the call did not end within 0\.1 s"):
        within(0.1, "the call", forever.wait)
    forever.set()
    with pytest.raises(ZeroDivisionError):
        within(5, "the call", lambda: 1 / 0)
    assert within(5, "the call", lambda: 3) == 3


def test_long_lists_are_cut_short() -> None:
    assert (listed([]), listed("ab"), listed("abcdef")) == ("none", "a, b", "a, b, c, d and 2 more")
