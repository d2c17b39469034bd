"""`roll migrate`: the config to standard output or a file, the reasons to standard error, nothing overwritten."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parent / "config" / "published" / "rlvr"


def roll(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roll_core", "migrate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return Path(shutil.copy(PUBLISHED / "fp8.yaml", tmp_path / "run.yaml"))


def test_the_config_goes_to_standard_output_and_its_story_to_standard_error(config: Path, tmp_path: Path) -> None:
    before = config.read_text()
    done = roll("run.yaml", "--to", "npu", folder=tmp_path)
    assert done.returncode == 0
    assert "strategy_name: fsdp2_train" in done.stdout
    assert "changes in" not in done.stdout
    assert "actor_train.strategy_args\n" in done.stderr
    assert "'megatron_train' does not run on platform npu; fsdp2_train does" in done.stderr
    assert "left for you" in done.stderr
    assert "finds no problem in the result" in done.stderr
    assert config.read_text() == before


def test_a_new_file_is_written_and_one_that_is_there_is_not(config: Path, tmp_path: Path) -> None:
    assert roll("run.yaml", "--to", "npu", "-o", "npu.yaml", folder=tmp_path).returncode == 0
    text = (tmp_path / "npu.yaml").read_text()
    assert "fsdp2_train" in text
    again = roll("run.yaml", "--to", "npu", "-o", "npu.yaml", folder=tmp_path)
    assert again.returncode == 1
    assert again.stderr == (
        "npu.yaml is there already, and nothing is overwritten\n  try: another file, or --in-place\n"
    )
    assert (tmp_path / "npu.yaml").read_text() == text


def test_a_file_is_changed_in_place_only_when_asked_and_once(config: Path, tmp_path: Path) -> None:
    config.chmod(0o640)
    assert roll("run.yaml", "--to", "npu", "--in-place", folder=tmp_path).returncode == 0
    text = config.read_text()
    assert "fsdp2_train" in text
    assert config.stat().st_mode & 0o777 == 0o640
    written = config.stat().st_mtime_ns
    again = roll("run.yaml", "--to", "npu", "--in-place", folder=tmp_path)
    assert "needs no change for platform npu" in again.stderr
    assert (config.read_text(), config.stat().st_mtime_ns) == (text, written)
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_what_the_check_still_finds_is_told_and_exits_2(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("num_beams: 1", "num_beams: 2"))
    done = roll("run.yaml", "--to", "npu", folder=tmp_path)
    assert done.returncode == 2
    assert "`roll check --platform npu` still finds 1" in done.stderr
    assert "actor_infer.generating_args.num_beams: beam search" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run.yaml", "--to", "ascend"), "no platform named 'ascend'"),
        (("none.yaml", "--to", "npu"), "no config none.yaml"),
        (("run.yaml", "--to", "npu", "--in-place", "-o", "x"), "--output and --in-place were both given"),
        (("broken.yaml", "--to", "npu"), "is no YAML"),
        (("run.yaml", "--to", "npu", "-o", "missing/new.yaml"), "missing is no folder"),
    ],
)
def test_a_mistake_is_told(config: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    done = roll(*arguments, folder=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_platform_that_is_not_there_exits_2_as_in_the_other_commands(config: Path, tmp_path: Path) -> None:
    assert roll("run.yaml", "--to", "ascend", folder=tmp_path).returncode == 2
