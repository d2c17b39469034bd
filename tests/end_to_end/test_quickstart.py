"""The quickstart as a user runs it: a tiny model learns to carry."""

from pathlib import Path

import pytest

from tests.end_to_end.runs import learnt
from tests.end_to_end.test_layouts import COLOCATED, SEPARATE


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "layout"),
    [(0, ()), (1, ()), (2, ()), (3, ()), (4, ()), (0, COLOCATED), (0, SEPARATE)],
    ids=["0", "1", "2", "3", "4", "colocated", "separate"],
)
def test_held_out_accuracy_rises_by_forty_points(tmp_path: Path, seed: int, layout: tuple[str, ...]) -> None:
    before, after, output = learnt(tmp_path, "quickstart", "--seed", str(seed), *layout, timeout_s=600)
    assert after - before >= 0.40, output.splitlines()[-1]
    folder = tmp_path / "output" / "quickstart"
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert (folder / "checkpoints" / "checkpoint-50" / "manifest.json").is_file()
