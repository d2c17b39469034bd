"""Whatever a command is given in the place of a config or of rollouts: one message, no traceback, exit code 2."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from roll_core.cli import main

COMMANDS = {"check": (), "migrate": ("--to", "cpu"), "show": ()}
CONTENTS = {
    "binary": bytes(range(256)),
    "empty": b"",
    "list": b"- 1\n- 2\n",
    "duplicate": b"seed: 1\nseed: 2\n",
    "tabs": b"a:\n\tb: 1\n",
    "large": b"# ten megabytes\n" * 655_360,
    "latin": "exp_name: caf\u00e9\n".encode("latin-1"),
}


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, path: Path
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["roll", command, str(path), *COMMANDS[command]])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, told.out + told.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("content", [*CONTENTS, "missing", "folder"])
def test_a_file_that_cannot_be_used_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, content: str
) -> None:
    path = tmp_path / "run.yaml"
    if content in CONTENTS:
        path.write_bytes(CONTENTS[content])
    elif content == "folder":
        path.mkdir()
    code, told = run(capsys, monkeypatch, command, path)
    assert code == 2
    assert told.startswith(("1 problem", "no rollouts in")) and "Traceback" not in told


@pytest.mark.parametrize("content", ["binary", "list", "latin"])
def test_a_file_without_rollouts_says_what_its_first_line_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "step-000001.jsonl"
    path.write_bytes(CONTENTS[content])
    code, told = run(capsys, monkeypatch, "show", path)
    assert code == 2
    assert told.startswith(f"no rollout in '{path}': ") and f"\n  the first: {path}:1: " in told


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("locked", ["file", "folder"])
def test_what_may_not_be_read_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, locked: str
) -> None:
    (tmp_path / "locked").mkdir()
    path = tmp_path / "locked" / "run.yaml"
    path.write_text("seed: 1\n")
    place = path if locked == "file" else path.parent
    place.chmod(0)
    try:
        if os.access(path, os.R_OK):
            pytest.skip("this user may read every file")
        code, told = run(capsys, monkeypatch, command, path)
    finally:
        place.chmod(0o700)
    assert code == 2
    assert "Permission denied" in told or "is not readable" in told
