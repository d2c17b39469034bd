"""A run as plain lines: for files, pipes and batch jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import IO

from roll_core.display.progress import Progress, duration

PARTS_SHOWN = 3


class PlainView:
    """One line per finished step; nothing is ever redrawn, and there are no control codes."""

    def __init__(self, progress: Progress, file: IO[str]) -> None:
        self._progress, self._file = progress, file
        self._encoding: str | None = getattr(file, "encoding", None)
        self._has_reader = True

    def start(self) -> None:
        """Say which run begins."""
        known = f": {self._progress.total_steps} steps" if self._progress.total_steps >= 0 else ""
        self.write([f"{self._progress.title}{known}"])

    def refresh(self, *, step_finished: bool = False) -> None:
        """Print the line of a step when it is finished; phases within a step are not worth a line."""
        if step_finished:
            self.write([step_line(self._progress)])

    def write(self, lines: Sequence[str], *, is_notice: bool = False) -> None:
        """Print lines; the first of a notice is marked, and the others stand under it."""
        if not self._has_reader:
            return
        try:
            for mark, line in zip(notice_marks(is_notice), lines):
                print(mark + printable(line, self._encoding), file=self._file)
            self._file.flush()
        except BrokenPipeError:
            # Whoever read the lines has gone (`| head`, a lost login); the run is worth more than its lines.
            self._has_reader = False

    def stop(self) -> None:
        """Nothing is left to undo."""


def notice_marks(is_notice: bool) -> Iterator[str]:
    """What stands before each line of a text."""
    return chain(["notice: "], repeat(" " * len("notice: "))) if is_notice else repeat("")


def printable(line: str, encoding: str | None) -> str:
    """The line with what the encoding does not have as escapes, so that no response of a model can end a run."""
    encoding = encoding or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)


def step_line(progress: Progress) -> str:
    """The state of a run on one line."""
    parts = [f"step {progress.step}/{progress.total_steps}"]
    parts += [f"{label} {value}" for label, value in progress.shown.items()]
    shares = list(progress.time_shares.items())[:PARTS_SHOWN]
    if shares:
        parts.append("time " + ", ".join(f"{name} {share:.0%}" for name, share in shares))
    parts.append(f"elapsed {duration(progress.elapsed_s)}")
    if progress.step < progress.total_steps:
        parts.append(f"eta {duration(progress.eta_s)}")
    return "  ".join(parts)
