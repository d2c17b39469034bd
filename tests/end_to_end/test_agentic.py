"""Agentic runs as a user starts them: environments fail in every way, steps go on, and a resumed run plays the same."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.agentic_runs import LakeRun, prepare_lake
from tests.end_to_end.runs import assert_all_gone, descendants, wait_for
from tests.end_to_end.troubled_lake import FAULTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
KILL_AT = HERE / "kill_at.py"
KILL_IN_EPISODE = HERE / "kill_in_episode.py"
UNLUCKY = (f"custom_envs.Lake.env_type={HERE / 'troubled_lake.py'}:UnluckyLake", "env_monitor.hung_timeout=20")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_lake(tmp_path_factory.mktemp("lake"))


def troubled(folder: Path, model: Path, *overrides: str) -> LakeRun:
    """A run whose environments make each kind of trouble once, and which keeps its temporary files in its folder."""
    (folder / "troubles").mkdir()
    (folder / "tmp").mkdir()
    settings = (
        f"custom_envs.Lake.env_type={HERE / 'troubled_lake.py'}:TroubledLake",
        f"custom_envs.Lake.env_config.troubles={folder / 'troubles'}",
        "env_monitor.hung_timeout=5",
        "eval_steps=0",
        "save_steps=0",
        "max_steps=2",
    )
    # Ray's own files have names too long for a folder of a test.
    environ = {"TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": "/tmp"}
    return LakeRun(folder, model, (*settings, *overrides), environ)


@contextmanager
def started(run: LakeRun) -> Iterator[subprocess.Popen[str]]:
    """The run's process, which does not outlive the test."""
    process = run.start()
    try:
        yield process
    finally:
        process.kill()


def check_episodes(run: LakeRun, steps: int, each: int = 12) -> None:
    """Every step was trained on as many whole episodes as it needs, each of them once."""
    for step in range(1, steps + 1):
        records = [json.loads(line) for line in run.rollouts()[f"episodes-{step:06d}.jsonl"].splitlines()]
        assert len({record["traj_id"] for record in records}) == len(records) == each
        assert all(record["end"] != "fault" and record["turns"] for record in records)
        assert run.metrics()[step]["train/grad_norm"] >= 0


@pytest.mark.parametrize("manager", ["traj", "step"])
def test_every_kind_of_trouble_is_counted_and_named_and_the_run_goes_on(
    manager: str, model: Path, tmp_path: Path
) -> None:
    run = troubled(tmp_path, model, f"custom_envs.Lake.env_manager_cls={manager}")
    with started(run) as process:
        run.wait_for_step(1, 240, process)
        family = descendants(process.pid)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert {path.name for path in (tmp_path / "troubles").iterdir()} == set(FAULTS)
    metrics = run.metrics()
    counted = {kind: sum(record.get(f"env/faults/{kind}", 0) for record in metrics.values()) for kind in FAULTS}
    assert [counted[kind] for kind in ("reset", "step", "not_finite", "too_long")] == [1, 1, 1, 1]
    # On a machine that is held up for seconds, more environments than the one that sleeps are late. Where several
    # were at work in the process that ended, nobody is blamed unless it does so again.
    assert counted["hang"] >= 1 and counted["crash"] <= 1
    assert sum(record["env/faults"] for record in metrics.values()) == sum(counted.values())
    assert sum(record["env/process_restarts"] for record in metrics.values()) >= 2
    check_episodes(run, steps=2)
    assert_all_gone(family)
    assert [path for path in (tmp_path / "tmp").iterdir() if "inductor" not in path.name] == []


def test_environments_whose_processes_are_killed_from_outside_are_played_again(model: Path, tmp_path: Path) -> None:
    run = troubled(tmp_path, model, "max_steps=12")
    for kind in FAULTS:
        (tmp_path / "troubles" / kind).touch()
    with started(run) as process:
        for step in (1, 3, 5):
            run.wait_for_step(step, 240, process)
            os.kill(wait_for(lambda: env_process(process.pid), "a process of environments", 30), signal.SIGKILL)
        family = descendants(process.pid)
        output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    metrics = run.metrics()
    # One that had nothing to do when it was killed is replaced without a fault.
    assert sum(record["env/process_restarts"] for record in metrics.values()) >= 1
    assert sum(record.get("env/faults/crash", 0) for record in metrics.values()) <= 3
    check_episodes(run, steps=12)
    assert_all_gone(family)


def env_process(root: int) -> int | None:
    """A process in which environments live, below another."""
    for process in psutil.Process(root).children():
        if any("env_process" in word for word in process.cmdline()):
            return process.pid
    return None


@pytest.fixture(scope="module")
def straight(model: Path, tmp_path_factory: pytest.TempPathFactory) -> LakeRun:
    run = LakeRun(tmp_path_factory.mktemp("straight"), model, UNLUCKY)
    code, output = run.finish()
    assert code == 0, output
    return run


def test_a_run_that_is_not_interrupted_plays_trains_validates_and_saves(straight: LakeRun) -> None:
    metrics = straight.metrics()
    assert sorted(metrics) == [0, 1, 2, 3, 4]
    assert [step for step in sorted(metrics) if "val/success" in metrics[step]] == [0, 2, 4]
    for kind in ("reset", "step", "not_finite", "too_long", "crash"):
        names = (f"env/faults/{kind}", f"val/env/faults/{kind}")
        assert sum(record.get(name, 0) for record in metrics.values() for name in names) > 0, kind
    check_episodes(straight, steps=4)


@pytest.mark.parametrize(
    ("moment", "saved"),
    [
        ("episodes train/1", 0),
        ("episodes train/3", 2),
        ("train 3", 2),
        ("episodes val/4", 2),
        ("checkpoint 2", 0),
        ("checkpoint 4", 2),
    ],
)
def test_a_killed_run_plays_the_same_episodes_when_it_goes_on(
    moment: str, saved: int, straight: LakeRun, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LakeRun(tmp_path, model, UNLUCKY)
    monkeypatch.setenv("KILL_AT", moment)
    monkeypatch.setenv("KILL_PIPELINE", "agentic")
    code, output = run.finish(script=KILL_IN_EPISODE if moment.startswith("episodes") else KILL_AT)
    assert code == -signal.SIGKILL, output
    if moment.startswith("checkpoint"):
        assert f".checkpoint-{saved + 2}.partial" in run.checkpoints()
    code, output = run.finish("resume_from_checkpoint=true")
    assert code == 0, output
    assert f"going on after step {saved}" in output or saved == 0
    assert run.metrics() == straight.metrics()
    assert run.rollouts() == straight.rollouts()
    assert run.checkpoints() == ["checkpoint-2", "checkpoint-4"]


def test_a_run_by_steps_plays_the_same_episodes_when_it_goes_on(
    model: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_steps = (*UNLUCKY, "custom_envs.Lake.env_manager_cls=step")
    straight, killed = (LakeRun(tmp_path_factory.mktemp(name), model, by_steps) for name in ("whole", "killed"))
    assert straight.finish()[0] == 0
    monkeypatch.setenv("KILL_AT", "episodes train/3")
    assert killed.finish(script=KILL_IN_EPISODE)[0] == -signal.SIGKILL
    code, output = killed.finish("resume_from_checkpoint=true")
    assert code == 0, output
    assert killed.metrics() == straight.metrics()
    assert killed.rollouts() == straight.rollouts()
