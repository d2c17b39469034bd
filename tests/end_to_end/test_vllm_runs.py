"""Runs whose engines are vLLM's, on plain processors."""

from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.inference.vllm import installed
from tests.end_to_end.runs import Run, assert_all_gone, descendants, learnt
from tests.inference.vllm_engines import NOT_INSTALLED

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(installed.folder() is None, reason=NOT_INSTALLED),
]
TWO_ENGINES = ("actor_infer.strategy_args.strategy_name=vllm", "actor_infer.device_mapping=[0,1]")


def test_two_engines_generate_with_the_trainers_weights_and_are_gone_afterwards(make_run: Callable[..., Run]) -> None:
    run = make_run("vllm", *TWO_ENGINES, "actor_infer.strategy_args.strategy_config.load_format=dummy", "max_steps=3")
    process = run.start()
    run.wait_for_step(1, timeout_s=400)
    children = descendants(process.pid)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    for step in (1, 2, 3):
        metrics = run.metrics()[step]
        # Weights learn at 5e-4 a step, so that stale ones would show here.
        assert metrics["actor/train_infer_ratio_sequence_mean"] == pytest.approx(1.0, abs=1e-3), step
    assert_all_gone(children)


@pytest.mark.slow
def test_the_quickstart_learns_with_two_engines(tmp_path: Path) -> None:
    before, after, output = learnt(tmp_path, "quickstart", "--seed", "0", *TWO_ENGINES, timeout_s=900)
    assert after - before >= 0.40, output.splitlines()[-1]
