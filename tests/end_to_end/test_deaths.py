"""A worker that is killed: the run ends and says who died, or starts a stateless one again. Nothing stays behind."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import Run, assert_all_gone, descendants

MakeRun = Callable[..., Run]
ENDLESS = ("max_steps=100000", "eval_steps=0")


@pytest.mark.parametrize("worker", ["actor_train-0", "actor_infer-0"])
def test_a_dead_worker_ends_the_run_and_leaves_a_checkpoint(make_run: MakeRun, worker: str) -> None:
    run = make_run("death", *ENDLESS)
    process = run.start()
    run.wait_for_step(3)
    family = descendants(process.pid)
    os.kill(run.worker_pid(worker), signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - killed < 60
    role, _, rank = worker.partition("-")
    assert process.returncode == 1
    assert f"{role} rank {rank} died" in output
    assert "resume_from_checkpoint=true" in output
    assert_all_gone(family)
    newest = max(int(name.partition("-")[2]) for name in run.checkpoints() if not name.startswith("."))
    assert newest >= 2
    if worker == "actor_infer-0":
        # The trainer lived: all that was finished is saved, not only every second step.
        assert newest == max(run.metrics())
    code, output = run.finish("resume_from_checkpoint=true", f"max_steps={newest + 1}", "eval_steps=0")
    assert code == 0, output
    assert f"going on after step {newest}" in output


@pytest.mark.slow
def test_one_of_two_engines_may_die(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """In mid-generation: the other one makes its answers, the same ones, and a new one takes its place."""
    layout = ("actor_infer.device_mapping=[0,1]", "eval_steps=0", "save_steps=0")
    straight, broken = make_run("whole", *layout), make_run("broken", *layout)
    monkeypatch.setenv("KILL_ENGINE", "1 train/2/")
    process = broken.start(script=Path(__file__).parent / "kill_engine.py")
    broken.wait_for_step(4)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "its 8 unfinished answers are made by the other actor_infer engines" in " ".join(output.split())
    code, straight_output = straight.finish()
    assert code == 0, straight_output
    assert broken.rollouts() == straight.rollouts()
    assert list(broken.metrics()) == list(straight.metrics()) == [1, 2, 3, 4]
    log = (broken.folder / "logs" / "quickstart" / "actor_infer-1.log").read_text()
    assert len(set(re.findall(r"process (\d+) on", log))) == 2


def test_a_dead_reward_worker_is_started_again_and_counted(make_run: MakeRun) -> None:
    run = make_run("reward", "max_steps=12", "eval_steps=0", "save_steps=0")
    process = run.start()
    run.wait_for_step(2)
    os.kill(run.worker_pid("reward-math_rule-0"), signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert run.metrics()[12]["rewards/worker_restarts"] == 1
    assert "reward worker" in output
