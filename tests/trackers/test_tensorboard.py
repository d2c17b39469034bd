import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from roll_core.trackers import RunInfo, open_trackers
from roll_core.trackers.tensorboard import TensorboardTracker


def run_info(folder: Path, resumed_step: int | None = None) -> RunInfo:
    return RunInfo("exp", folder / "output", folder, resumed_step=resumed_step, warn=pytest.fail)


def log_steps(folder: Path, steps: range, resumed_step: int | None = None, offset: float = 0.0) -> Path:
    tracker = TensorboardTracker(run_info(folder, resumed_step))
    for step in steps:
        tracker.log(step, {"train/loss": step + offset, "val_correct/all/mean": 0.5, "note": f"step {step}"})
    tracker.close()
    return Path(tracker.location)


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars("train/loss")]


def test_scalars_and_text_come_back(tmp_path: Path) -> None:
    folder = log_steps(tmp_path, range(3))
    assert folder == tmp_path / "output" / "tensorboard" / "exp"
    assert losses(folder) == [(0, 0.0), (1, 1.0), (2, 2.0)]
    read = events(folder)
    assert read.Tags()["scalars"] == ["train/loss", "val_correct/all/mean"]
    assert [event.tensor_proto.string_val[0] for event in read.Tensors("note")] == [b"step 0", b"step 1", b"step 2"]


def test_log_dir_is_used_exactly_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunInfo("qwen3", Path("output"), Path("output"), warn=pytest.fail)
    trackers = open_trackers("tensorboard", {"log_dir": "./output/tensorboard/rlvr"}, run)
    trackers.log(1, {"reward/mean": 0.25})
    trackers.close()
    folder = tmp_path / "output" / "tensorboard" / "rlvr"
    assert [path.name.split(".")[2] for path in folder.iterdir()] == ["tfevents"]
    assert events(folder).Scalars("reward/mean")[0].value == 0.25
    assert trackers.locations == {"jsonl": "output/metrics.jsonl", "tensorboard": "output/tensorboard/rlvr"}


def test_a_step_can_be_read_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    tracker = TensorboardTracker(run_info(tmp_path))
    tracker.log(7, {"train/loss": 1.0})
    assert losses(Path(tracker.location)) == [(7, 1.0)]
    tracker.close()


def test_resuming_replaces_the_steps_after_the_checkpoint_and_no_other(tmp_path: Path) -> None:
    log_steps(tmp_path, range(8))
    folder = log_steps(tmp_path, range(6, 9), resumed_step=5, offset=0.5)
    assert losses(folder) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6.5), (7, 7.5), (8, 8.5)]


def test_steps_lost_in_a_crash_are_dropped_even_before_they_are_repeated(tmp_path: Path) -> None:
    log_steps(tmp_path, range(8))
    folder = log_steps(tmp_path, range(6, 6), resumed_step=5)
    assert [step for step, _ in losses(folder)] == [0, 1, 2, 3, 4, 5]


def test_resuming_after_a_torn_event_file_works(tmp_path: Path) -> None:
    folder = log_steps(tmp_path, range(6))
    (torn,) = folder.iterdir()
    torn.write_bytes(torn.read_bytes()[:-7])
    log_steps(tmp_path, range(5, 7), resumed_step=4)
    assert [step for step, _ in losses(folder)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_start_from_scratch_in_the_same_folder_shows_the_new_run(tmp_path: Path) -> None:
    log_steps(tmp_path, range(8))
    folder = log_steps(tmp_path, range(2), offset=0.5)
    assert losses(folder) == [(0, 0.5), (1, 1.5)]


def test_many_starts_within_a_second_stay_in_order(tmp_path: Path) -> None:
    for start in range(5):
        folder = log_steps(tmp_path, range(start, start + 3), resumed_step=start - 1 if start else None, offset=start)
    assert losses(folder) == [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8), (5, 9), (6, 10)]


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    tracker = TensorboardTracker(run_info(tmp_path))
    tracker.log(0, {"train/loss": 1.0})
    tracker.log(1, {"train/loss": "nan"})
    tracker.close()
    assert losses(Path(tracker.location)) == [(0, 1.0)]
    assert events(Path(tracker.location)).Tags()["tensors"] == []


LIGHT = """
import sys
from pathlib import Path
from roll_core.trackers import RunInfo, open_trackers
assert "tensorboard" not in sys.modules
trackers = open_trackers("tensorboard", {}, RunInfo("exp", Path(sys.argv[1]), Path(sys.argv[1])))
trackers.log(0, {"x": 1.0, "y": "text"})
trackers.close()
print([name for name in ("torch", "tensorflow", "transformers", "ray") if name in sys.modules])
"""


def test_writing_event_files_imports_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LIGHT, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.stdout == "[]\n", done.stderr
