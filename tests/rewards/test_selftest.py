from __future__ import annotations

import subprocess
import sys

import pytest

from roll_core.rewards import selftest
from roll_core.rewards.math_rule import MathRuleReward


def test_this_install_grades_all_known_pairs_right() -> None:
    assert MathRuleReward.self_test() == []


def test_a_wrong_verdict_is_reported_with_the_installed_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "MATH_PAIRS", (("7", "7", True), ("2", "1", True), ("\\sqrt2", "\\sqrt{2}", False)))
    first, second, versions = selftest.math_problems()
    assert first == "math_rule grades answer 1 against reference 2 as wrong; it is right"
    assert second == "math_rule grades answer \\sqrt{2} against reference \\sqrt2 as right; it is wrong"
    assert "antlr4-python3-runtime" in versions


def test_an_install_whose_parser_reads_nothing_is_caught() -> None:
    # What a broken pair of parser and run time looks like: every parse raises.
    code = (
        "import latex2sympy2_extended.latex2sympy2 as parser\n"
        "def broken(*args, **kwargs): raise AttributeError('no such token')\n"
        "parser.latex2sympy = broken\n"
        "from roll_core.rewards.math_rule import MathRuleReward\n"
        "print(len(MathRuleReward.self_test()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 5
