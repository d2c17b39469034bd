"""The services themselves, offline. Each needs its package, which roll-core does not depend on."""

from pathlib import Path

import pytest

from roll_core.trackers import RunInfo, open_trackers


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "SWANLAB_API_KEY", "SWANLAB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("SWANLAB_SAVE_DIR", str(tmp_path / "swanlab_home"))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.chdir(tmp_path)


def log_two_steps(name: str, folder: Path, warnings: list[str], resumed_step: int | None = None) -> str:
    run = RunInfo("exp", folder, folder, config={"seed": 42}, resumed_step=resumed_step, warn=warnings.append)
    trackers = open_trackers(name, {"project": "tests"}, run)
    first = 0 if resumed_step is None else resumed_step + 1
    for step in (first, first + 1):
        trackers.log(step, {"reward/mean": 0.5, "note": "text", "loss": 1})
    trackers.close()
    return trackers.locations[name]


def test_wandb_without_a_login_records_offline(tmp_path: Path, no_login: None) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    warnings: list[str] = []
    location = log_two_steps("wandb", tmp_path, warnings)
    assert warnings == ["wandb: no login found; recorded offline, to be uploaded with `wandb sync`"]
    assert list(Path(location).glob("*.wandb"))
    again = log_two_steps("wandb", tmp_path, warnings, resumed_step=1)
    assert Path(again).name.rpartition("-")[2] == Path(location).name.rpartition("-")[2]


def test_swanlab_without_a_login_records_offline(tmp_path: Path, no_login: None) -> None:
    pytest.importorskip("swanlab", reason="swanlab is not installed")
    warnings: list[str] = []
    location = log_two_steps("swanlab", tmp_path, warnings)
    assert warnings == ["swanlab: no login found; recorded offline, to be uploaded with `swanlab sync`"]
    assert list(Path(location).rglob("*.swanlab"))


def test_trackio_records_on_this_machine(tmp_path: Path, no_login: None) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    warnings: list[str] = []
    assert log_two_steps("trackio", tmp_path, warnings) == "trackio show --project tests"
    assert warnings == []
    assert (tmp_path / "trackio" / "tests.db").is_file()
