"""The scripts that start pipelines: their arguments, and what each of them fixes."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def start(script: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a script in this process; what it exits with."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return caught.value.code


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("start_*_pipeline.py")))
def test_a_script_finds_a_config_by_folder_and_name_and_tells_what_is_wrong_with_it(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--config_path", "quickstart", "--config_name", "rlvr", "max_steps=0")
    assert start(script, *given, monkeypatch=monkeypatch) == 2
    errors = capsys.readouterr().err
    assert "max_steps: must be at least 1" in errors
    assert ("-1 for all there is" in errors) == ("rollout" in script)


def test_options_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("start_rlvr_pipeline.py", "--help", monkeypatch=monkeypatch) == 0
    assert "--config_name" in capsys.readouterr().out
