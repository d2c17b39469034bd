"""The quickstart's YAML on the platform `npu`, with simulated devices: only the platform and the devices change."""

from pathlib import Path

import pytest

from tests.end_to_end.runs import Run, learnt
from tests.end_to_end.test_layouts import COLOCATED, SEPARATE, SHORT
from tests.simulated_npu.machine import environment

ON_NPUS = "platform=npu"
FEWER_BITS = {"rel": 1e-5, "abs": 1e-7}
"""How far a float32 figure of the device may be from a processor's: other kernels, and sums in another order."""


def finished(folder: Path, assets: Path, *overrides: str, devices: str = "") -> Run:
    run = Run(folder, assets, overrides, environment(devices) if devices else {})
    code, output = run.finish()
    assert code == 0, output
    if devices:
        assert f"torch_npu counts {devices} devices" in output
    return run


def assert_same_learning(ours: Run, theirs: Run, steps: int) -> None:
    assert ours.rollouts() == theirs.rollouts()
    found, expected = ours.metrics(), theirs.metrics()
    for step in range(1, steps + 1):
        for name in ("train/loss", "train/grad_norm", "reward/mean", "actor/pg_loss"):
            assert found[step][name] == pytest.approx(expected[step][name], **FEWER_BITS), (step, name)


@pytest.mark.slow
def test_two_trainers_and_two_engines_on_two_npus_learn_what_they_learn_on_processors(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = finished(tmp_path_factory.mktemp("cpu"), assets, *SHORT, *COLOCATED)
    ours = finished(tmp_path_factory.mktemp("npu"), assets, *SHORT, *COLOCATED, ON_NPUS, devices="2")
    assert_same_learning(ours, theirs, steps=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_engines_on_npus_of_their_own_get_weights_by_collectives_and_resume_is_exact(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    theirs = finished(tmp_path_factory.mktemp("cpu"), assets, *SEPARATE, "max_steps=3")
    ours = finished(tmp_path_factory.mktemp("npu"), assets, *SEPARATE, "max_steps=3", ON_NPUS, devices="4")
    assert_same_learning(ours, theirs, steps=3)
    again = tmp_path_factory.mktemp("again")
    finished(again, assets, *SEPARATE, "max_steps=2", ON_NPUS, devices="4")
    resumed = finished(again, assets, *SEPARATE, "max_steps=3", "resume_from_checkpoint=true", ON_NPUS, devices="4")
    assert resumed.metrics()[3] == ours.metrics()[3]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_held_out_accuracy_rises_by_forty_points_on_npus(tmp_path: Path) -> None:
    before, after, output = learnt(tmp_path, "quickstart", "--seed", "0", *COLOCATED, ON_NPUS, environ=environment("2"))
    assert after - before >= 0.40, output.splitlines()[-1]
