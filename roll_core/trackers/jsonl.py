"""metrics.jsonl: one JSON object per step, kept beside whatever other tracker a run has."""

from __future__ import annotations

import json
import os
from pathlib import Path

from roll_core.trackers.base import Metrics, RunInfo, Tracker

FILE_NAME = "metrics.jsonl"


class JsonlTracker(Tracker):
    """Appends a line per step to `<run_dir>/metrics.jsonl`; a killed run loses no line that was logged.

    A run that goes on from a checkpoint first cuts the lines after it, so that the file is that of one run. A start
    from scratch leaves an older file beside its own, as metrics.1.jsonl and so on.
    """

    def __init__(self, run: RunInfo) -> None:
        run.run_dir.mkdir(parents=True, exist_ok=True)
        self.path = run.run_dir / FILE_NAME
        self.location = str(self.path)
        if run.resumed_step is None:
            self._set_aside(run)
        else:
            self._cut_after(run.resumed_step, run)
        # Unbuffered, and in append mode: a line is one write to the end of the file.
        self._file = self.path.open("ab", buffering=0)
        self._in_mid_line = False

    def log(self, step: int, metrics: Metrics) -> None:
        """Append one line.

        Raises:
            OSError: the disk is full; what was cut off stays on a line of its own.
        """
        content = {"step": step, **{name: value for name, value in metrics.items() if name != "step"}}
        line = json.dumps(content, allow_nan=False).encode() + b"\n"
        if self._in_mid_line:
            line = b"\n" + line
        self._in_mid_line = True
        while line:
            line = line[self._file.write(line) :]
        self._in_mid_line = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _set_aside(self, run: RunInfo) -> None:
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return
        count = 1
        while (aside := self.path.with_name(f"metrics.{count}.jsonl")).exists():
            count += 1
        self.path.rename(aside)
        run.warn(f"{self.path} of an earlier run is now {aside.name}")

    def _cut_after(self, resumed_step: int, run: RunInfo) -> None:
        if not self.path.is_file():
            return
        content = self.path.read_bytes()
        lines = content.splitlines(keepends=True)
        kept = [line for line in lines if (step := _step_of(line)) is not None and step <= resumed_step]
        broken = sum(_step_of(line) is None and bool(line.strip()) for line in lines[:-1])
        if broken:
            run.warn(f"{broken} broken lines in {self.path} were left out")
        if b"".join(kept) == content:
            return
        shortened = self.path.with_name(f".{FILE_NAME}.partial")
        with shortened.open("wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        shortened.replace(self.path)


def read_metrics(path: Path) -> list[dict[str, float | int | str]]:
    """The steps in a metrics.jsonl, in order; a last line that a kill has cut short is left out.

    Raises:
        ValueError: another line is broken; the message has its number.
    """
    lines = path.read_bytes().splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        if _step_of(line) is not None:
            rows.append(json.loads(line))
        elif line.strip() and number < len(lines):
            raise ValueError(f"{path}:{number} is no JSON object with a step: {line[:80]!r}")
    return rows


def _step_of(line: bytes) -> int | None:
    """The step of a line; None where the line is broken."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
