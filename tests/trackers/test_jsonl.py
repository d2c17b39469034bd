import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.trackers import RunInfo, read_metrics
from roll_core.trackers.jsonl import JsonlTracker


def run_info(folder: Path, resumed_step: int | None = None, warnings: list[str] | None = None) -> RunInfo:
    warn = pytest.fail if warnings is None else warnings.append
    return RunInfo("exp", folder, folder, resumed_step=resumed_step, warn=warn)


def log_steps(folder: Path, steps: range, resumed_step: int | None = None) -> None:
    tracker = JsonlTracker(run_info(folder, resumed_step))
    for step in steps:
        tracker.log(step, {"train/loss": step / 3, "count": step, "note": "\u00e9"})
    tracker.close()


def test_each_step_is_a_line_that_comes_back_exactly(tmp_path: Path) -> None:
    log_steps(tmp_path / "new", range(3))
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": step, "train/loss": step / 3, "count": step, "note": "\u00e9"} for step in range(3)
    ]
    assert read_metrics(tmp_path / "new" / "metrics.jsonl") == [json.loads(line) for line in lines]


def test_a_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    tracker = JsonlTracker(run_info(tmp_path))
    tracker.log(0, {"x": 1.5})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0, "x": 1.5}\n'
    tracker.close()


def test_a_metric_called_step_does_not_replace_the_step(tmp_path: Path) -> None:
    tracker = JsonlTracker(run_info(tmp_path))
    tracker.log(4, {"step": 99, "x": 1})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 4, "x": 1}]


def test_resuming_cuts_the_steps_after_the_checkpoint(tmp_path: Path) -> None:
    log_steps(tmp_path, range(8))
    straight = (tmp_path / "metrics.jsonl").read_bytes()
    log_steps(tmp_path, range(6, 8), resumed_step=5)
    assert (tmp_path / "metrics.jsonl").read_bytes() == straight
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_cut_short_by_a_kill_is_dropped_without_a_word(tmp_path: Path) -> None:
    log_steps(tmp_path, range(4))
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert [row["step"] for row in read_metrics(path)] == [0, 1, 2]
    log_steps(tmp_path, range(3, 5), resumed_step=2)
    assert [row["step"] for row in read_metrics(path)] == [0, 1, 2, 3, 4]


def test_broken_lines_before_the_last_are_counted(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\nnonsense\n{"step": 1}\n[1]\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl:2 is no JSON object with a step"):
        read_metrics(tmp_path / "metrics.jsonl")
    warnings: list[str] = []
    JsonlTracker(run_info(tmp_path, 2, warnings)).close()
    assert warnings == [f"2 broken lines in {tmp_path}/metrics.jsonl were left out"]
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1, 2]


def test_a_start_from_scratch_keeps_the_older_file_beside_its_own(tmp_path: Path) -> None:
    log_steps(tmp_path, range(2))
    warnings: list[str] = []
    for _ in range(2):
        tracker = JsonlTracker(run_info(tmp_path, None, warnings))
        tracker.log(0, {})
        tracker.close()
    assert warnings == [
        f"{tmp_path}/metrics.jsonl of an earlier run is now metrics.1.jsonl",
        f"{tmp_path}/metrics.jsonl of an earlier run is now metrics.2.jsonl",
    ]
    assert len(read_metrics(tmp_path / "metrics.1.jsonl")) == 2


def test_resuming_without_a_file_begins_one(tmp_path: Path) -> None:
    log_steps(tmp_path, range(6, 8), resumed_step=5)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [6, 7]


LIMITED = """
import resource, sys
from pathlib import Path
from roll_core.trackers.base import RunInfo
from roll_core.trackers.jsonl import JsonlTracker
tracker = JsonlTracker(RunInfo("exp", Path(sys.argv[1]), Path(sys.argv[1])))
tracker.log(0, {"x": 0})
resource.setrlimit(resource.RLIMIT_FSIZE, (30, resource.RLIM_INFINITY))
try:
    tracker.log(1, {"x": 1})
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tracker.log(2, {"x": 2})
"""


def test_a_line_that_did_not_fit_does_not_spoil_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "File too large\n", done.stderr
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines == ['{"step": 0, "x": 0}', '{"step": 1', '{"step": 2, "x": 2}']
