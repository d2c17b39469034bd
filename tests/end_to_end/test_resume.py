"""A run that was killed goes on as if it had not been: same losses, same rewards, same sampled tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import Run, assert_all_gone, descendants

KILL_AT = Path(__file__).parent / "kill_at.py"
MakeRun = Callable[..., Run]


@pytest.fixture(scope="module")
def straight(make_run: MakeRun) -> Run:
    run = make_run("straight")
    code, output = run.finish()
    assert code == 0, output
    return run


def test_an_uninterrupted_run_learns_validates_and_saves(straight: Run) -> None:
    metrics = straight.metrics()
    assert list(metrics) == [0, 1, 2, 3, 4]
    assert [step for step in metrics if "val_correct/all/mean" in metrics[step]] == [0, 2, 4]
    assert all(metrics[step]["train/grad_norm"] > 0 for step in (1, 2, 3, 4))
    assert straight.checkpoints() == ["checkpoint-2", "checkpoint-4"]
    names = {path.name for path in (straight.folder / "checkpoints" / "checkpoint-4").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "dcp", "pipeline", "manifest.json"} <= names


@pytest.mark.parametrize("where", ["train 4", "train 3", "checkpoint 4"])
def test_a_killed_run_goes_on_exactly(
    straight: Run, make_run: MakeRun, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("killed")
    monkeypatch.setenv("KILL_AT", where)
    code, output = run.finish(script=KILL_AT)
    assert code == -9, output
    if where.startswith("checkpoint"):
        assert ".checkpoint-4.partial" in run.checkpoints()
    code, output = run.finish("resume_from_checkpoint=true")
    assert code == 0, output
    assert "going on after step 2" in output
    assert run.metrics() == straight.metrics()
    assert run.rollouts() == straight.rollouts()
    assert run.checkpoints() == ["checkpoint-2", "checkpoint-4"]


def test_nothing_is_left_running_when_the_driver_is_killed(make_run: MakeRun) -> None:
    run = make_run("driver", "max_steps=1000", "save_steps=0", "eval_steps=0")
    process = run.start()
    run.wait_for_step(2)
    family = descendants(process.pid)
    assert len(family) > 3
    process.kill()
    process.communicate(timeout=30)
    assert_all_gone(family)
