import random
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.checkpoint import CheckpointFolder, PipelineState, load_pipeline_state, save_pipeline_state
from roll_core.errors import CheckpointError


def draw() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(())),
        float(torch.randn(())),
    ]


@pytest.mark.parametrize("draws_before", [1, 2])
def test_the_driver_draws_the_same_numbers_after_a_restore(tmp_path: Path, draws_before: int) -> None:
    for _ in range(draws_before):  # Gaussians come in pairs, so the second of a pair is part of the state.
        draw()
    save_pipeline_state(tmp_path, PipelineState(step=3))
    expected = [draw() for _ in range(3)]
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    load_pipeline_state(tmp_path)
    assert [draw() for _ in range(3)] == expected


def test_the_state_comes_back_exactly(tmp_path: Path) -> None:
    state = PipelineState(
        step=17,
        sampler={"math": {"epoch": 2, "position": 9, "order": [3, 1, 2]}},
        other={
            "note": "\u00e9\u4e2d",
            "nothing": None,
            "kl": {"value": 0.1 + 0.2},
            "rewards": {"count": 5, "mean": -1e-300, "m2": 1 / 3},
        },
    )
    save_pipeline_state(tmp_path, state)
    assert load_pipeline_state(tmp_path) == state


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ({"position": {3: 1}}, r"state\.sampler\.position would not come back from JSON unchanged"),
        ({"seen": [{"by_rank": {0: 1}}]}, r"state\.sampler\.seen\[0\]\.by_rank would not come back"),
        ({"tensor": torch.zeros(2)}, "holds a Tensor, which JSON cannot hold"),
    ],
)
def test_a_state_that_json_would_change_is_refused_when_saved(
    tmp_path: Path, sampler: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        save_pipeline_state(tmp_path, PipelineState(step=1, sampler=sampler))


def test_loading_may_leave_the_random_states_alone(tmp_path: Path) -> None:
    save_pipeline_state(tmp_path, PipelineState(step=3))
    random.seed(5)
    expected = random.Random(5).random()
    load_pipeline_state(tmp_path, restore_rng=False)
    assert random.random() == expected


@pytest.mark.parametrize("name", ["pipeline/state.json", "pipeline/rng/driver.pt"])
def test_a_missing_or_broken_file_is_named(tmp_path: Path, name: str) -> None:
    save_pipeline_state(tmp_path, PipelineState(step=3))
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(CheckpointError, match=name):
        load_pipeline_state(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_pipeline_state(tmp_path)


def test_the_state_is_part_of_the_manifest(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    save_pipeline_state(folder.begin(3), PipelineState(step=3))
    folder.finish(3)
    resume = folder.find(True)
    assert resume is not None
    assert set(resume.manifest.files) == {"pipeline/state.json", "pipeline/rng/driver.pt"}
    assert load_pipeline_state(resume.path).step == 3


@pytest.mark.parametrize("name", ["pipeline/state.json", "pipeline/rng/driver.pt"])
def test_a_full_disk_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"cannot save the state after step 3: No space left on device"):
        save_pipeline_state(tmp_path, PipelineState(step=3))
