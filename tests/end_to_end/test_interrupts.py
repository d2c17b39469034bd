"""A run stopped by its user or by a batch system keeps its finished steps, says how to go on, and leaves nothing."""

import signal
from collections.abc import Callable

import pytest

from tests.end_to_end.runs import Run, assert_all_gone, descendants

MakeRun = Callable[..., Run]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_saved_and_goes_on(make_run: MakeRun, number: signal.Signals) -> None:
    run = make_run("stopped", "max_steps=100000", "eval_steps=0", "save_steps=0")
    process = run.start()
    run.wait_for_step(2)
    family = descendants(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in output and "received at time" not in output
    assert f"stopped by {number.name}\n" in output
    assert_all_gone(family)
    [saved] = run.checkpoints()
    assert f"{saved.partition('-')[2]} steps are saved; to go on" in output
    assert int(saved.partition("-")[2]) == max(run.metrics())
    step = saved.partition("-")[2]
    code, output = run.finish("resume_from_checkpoint=true", f"max_steps={step}")
    assert code == 0, output
    assert f"nothing to do: {run.folder / 'checkpoints' / saved} is the end of step {step}" in output
