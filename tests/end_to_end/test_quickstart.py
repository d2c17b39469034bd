"""The quickstart as a user runs it: a tiny model learns to carry."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.runs import REPOSITORY
from tests.end_to_end.test_layouts import COLOCATED, SEPARATE


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "layout"),
    [(0, ()), (1, ()), (2, ()), (3, ()), (4, ()), (0, COLOCATED), (0, SEPARATE)],
    ids=["0", "1", "2", "3", "4", "colocated", "separate"],
)
def test_held_out_accuracy_rises_by_forty_points(tmp_path: Path, seed: int, layout: tuple[str, ...]) -> None:
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "quickstart" / "run.py"), "--seed", str(seed), *layout],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    found = re.fullmatch(r"RESULT before=(\d\.\d\d) after=(\d\.\d\d) seconds=(\d+)", last)
    assert found is not None, last
    before, after = float(found[1]), float(found[2])
    assert after - before >= 0.40, last
    folder = tmp_path / "output" / "quickstart"
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert (folder / "checkpoints" / "checkpoint-50" / "manifest.json").is_file()
