"""RLVR with images, in processes of its own: it learns from images, and from nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlvr_vlm"
RESULT = re.compile(r"^RESULT before=(\d\.\d+) after=(\d\.\d+) seconds=\d+$", re.MULTILINE)


def run(folder: Path, *arguments: str) -> tuple[float, float]:
    """Accuracy on held-out images before and after."""
    command = [sys.executable, str(EXAMPLE / "run.py"), *arguments]
    command += ["platform=cpu", f"rewards.squares.worker_cls={EXAMPLE / 'reward.py'}:names_the_colour"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = RESULT.search(done.stdout)
    assert found is not None, done.stdout[-3000:]
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_a_model_that_mostly_guesses_learns_to_look(tmp_path: Path) -> None:
    before, after = run(tmp_path)
    assert before < 0.6 and after > 0.8


@pytest.mark.slow
def test_nothing_is_learnt_from_blank_images(tmp_path: Path) -> None:
    _before, after = run(tmp_path, "--blank")
    assert after < 0.35


@pytest.mark.slow
def test_two_ranks_two_engines_and_rows_by_reference(tmp_path: Path) -> None:
    layout = ["actor_train.device_mapping=[0,1]", "actor_infer.device_mapping=[0,1]"]
    layout += ["actor_train.training_args.gradient_accumulation_steps=2", "transfer_backend.backend_name=ray"]
    before, after = run(tmp_path, *layout, "max_steps=8", "eval_steps=8", "save_steps=8")
    assert after > before + 0.1
