"""Names of a Python file, told without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from roll_core.source_names import name_problem

SOURCES = [
    ("def score(sample): ...", "score"),
    ("class Score:\n    def inner(self): ...", "Score"),
    ("import json as score", "score"),
    ("from json import loads", "loads"),
    ("from json import *", "score"),
    ("score = other = 1", "other"),
    ("first, (second, *rest) = [1, (2, 3)]", "rest"),
    ("score: int = 1", "score"),
    ("try:\n    import fast as score\nexcept ImportError:\n    score = None", "score"),
    ("if True:\n    pass\nelse:\n    for score in []: ...", "score"),
    ("with open('x') as score: ...", "score"),
    ("match 1:\n    case 1:\n        def score(): ...", "score"),
    ("globals()['score'] = 1", "score"),
    ("def make():\n    global score\n    score = 1", "score"),
    ("def __getattr__(name): ...", "score"),
]


@pytest.mark.parametrize(("text", "name"), SOURCES)
def test_a_name_that_a_file_may_have_is_no_problem(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert name_problem(file, name, "reward") is None


def test_a_name_that_a_file_cannot_have_is_told_with_those_it_has(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import json\nLIMIT = 3\ndef score(sample):\n    inner = 1\n    return [x for x in ()]\n_own = 1\n")
    for name in ("inner", "x", "sample"):
        assert name_problem(file, name, "reward 'r'") == f"no '{name}' in {file} for reward 'r'\n  it has: LIMIT, score"
    assert str(name_problem(file, "scores", "r")).endswith("\n  did you mean 'score'?")


@pytest.mark.parametrize("text", ["def score(:", "\0"])
def test_a_file_that_is_no_python_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert str(name_problem(file, "score", "reward 'r'")).startswith(f"{file} for reward 'r' is no Python: ")
