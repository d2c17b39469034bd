"""The algorithms' example configs as a user runs them: each learns to carry; a divergence changes what it says."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.runs import REPOSITORY, Run

MakeRun = Callable[..., Run]
COMPARE = REPOSITORY / "examples" / "rlvr_algorithms" / "compare.py"
NAMES = ("grpo", "reinforce_plus_plus", "ppo", "rloo", "gspo", "cispo", "topr")


def test_every_config_of_the_folder_is_compared() -> None:
    found = {path.stem for path in COMPARE.parent.glob("*.yaml")}
    assert found == set(NAMES)
    assert f"NAMES = {NAMES}".replace("'", '"') in COMPARE.read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_each_algorithm_raises_held_out_accuracy_by_thirty_points(tmp_path: Path, name: str) -> None:
    result = subprocess.run(
        [sys.executable, str(COMPARE), name, "--seeds", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(rf"^{name} seed 0: (\d\.\d\d) -> (\d\.\d\d)$", result.stdout, re.MULTILINE)
    assert found is not None, result.stdout
    assert float(found[2]) - float(found[1]) >= 0.30, result.stdout


@pytest.mark.slow
def test_a_divergence_in_the_loss_is_nothing_at_first_and_then_added(make_run: MakeRun) -> None:
    """The policy of step 1 is the reference: both runs take the same step, and differ from then on."""
    short = (
        "max_steps=2",
        "save_steps=0",
        "eval_steps=0",
        "actor_train.training_args.lr_scheduler_type=constant",
        "actor_train.training_args.warmup_steps=0",
    )
    off, on = make_run("kl_off", *short), make_run("kl_on", *short, "use_kl_loss=true", "kl_loss_coef=50")
    for run in (off, on):
        code, output = run.finish()
        assert code == 0, output
    without, with_kl = off.metrics(), on.metrics()
    assert with_kl[1]["actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    for name in ("actor/pg_loss", "train/loss", "train/grad_norm"):
        assert with_kl[1][name] == pytest.approx(without[1][name], rel=1e-4, abs=1e-5), name
    assert off.rollouts()["step-000001.jsonl"] == on.rollouts()["step-000001.jsonl"]
    assert with_kl[2]["actor/kl_loss"] > 0
    total = with_kl[2]["actor/pg_loss"] + 50 * with_kl[2]["actor/kl_loss"]
    assert with_kl[2]["actor/total_loss"] == pytest.approx(total, rel=1e-4, abs=1e-6)
    assert with_kl[2]["train/grad_norm"] != pytest.approx(without[2]["train/grad_norm"], rel=1e-3)
