"""What a user sees of a run while it goes on: a live panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from roll_core.display.plain import PlainView
from roll_core.display.progress import Progress
from roll_core.display.sample import Sample, sample_lines
from roll_core.display.summary import RunSummary, summary_lines

if TYPE_CHECKING:
    from rich.console import Console


class View(Protocol):
    """One way to show a run. `write` is for text that stays; `refresh` follows a change of the progress."""

    def start(self) -> None: ...
    def refresh(self, *, step_finished: bool = False) -> None: ...
    def write(self, lines: Sequence[str], *, is_notice: bool = False) -> None: ...
    def stop(self) -> None: ...


class RunDisplay:
    """Shows a run; use it as a context manager.

    On a terminal the panel stays at the bottom and everything else that is printed scrolls above it. Where standard
    output is no terminal (a file, a pipe, a batch job) each step is one line, without control codes.

    Args:
        total_steps: how many steps the run has.
        title: the run's name.
        console: where to draw; standard output by default.
    """

    def __init__(self, total_steps: int, title: str, console: Console | None = None) -> None:
        self._progress = Progress(total_steps, title)
        self._view = _view(self._progress, console)

    def __enter__(self) -> RunDisplay:
        self._view.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.stop()

    def phase(self, name: str) -> None:
        """Say what the run is doing now, such as "generate"."""
        self._progress.phase = name
        self._view.refresh()

    def going_on(self, step: int) -> None:
        """Say that so many steps were finished by an earlier run."""
        self._progress.step = step
        self._view.refresh()

    def expect(self, total_steps: int) -> None:
        """Say how many steps the run has, where that was not known when it began."""
        self._progress.total_steps = total_steps
        self._view.refresh()

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show a finished step. `step` counts from 1; 0 is for a validation before the first."""
        self._progress.update(step, metrics)
        self._view.refresh(step_finished=True)

    def checkpoint(self, path: Path | str) -> None:
        """Show where the last checkpoint is."""
        self._progress.last_checkpoint = str(path)
        self._view.refresh()

    def notice(self, text: str) -> None:
        """Show something the user should read; it stays above the panel."""
        self._view.write(text.splitlines(), is_notice=True)

    def samples(self, rows: Sequence[Sample]) -> None:
        """Show some prompts with their responses and scores."""
        self._view.write(sample_lines(rows))

    def summary(
        self,
        files: Mapping[str, Path | str],
        results: Sequence[str] = (),
        *,
        before: float | None = None,
        after: float | None = None,
    ) -> None:
        """Show how the run went, below the last state of the panel, which is not redrawn after it.

        Args:
            files: what the user will look for, by label: "checkpoint", "tensorboard", "metrics".
            results: further lines on what came of the run.
            before, after: held-out accuracy in [0, 1]; the first and the last `val_correct/all/mean` by default.
        """
        progress = self._progress
        summary = RunSummary(
            title=progress.title,
            steps=progress.step,
            total_steps=progress.total_steps,
            seconds=progress.elapsed_s,
            before=progress.first_accuracy if before is None else before,
            after=progress.last_accuracy if after is None else after,
            results=tuple(results),
            files={label: str(path) for label, path in files.items()},
        )
        self._view.stop()
        self._view.write(summary_lines(summary))


def _view(progress: Progress, console: Console | None) -> View:
    is_terminal = sys.stdout.isatty() if console is None else console.is_terminal and not console.is_dumb_terminal
    if not is_terminal:
        return PlainView(progress, console.file if console is not None else sys.stdout)
    from rich.console import Console

    from roll_core.display.live import LiveView

    return LiveView(progress, console or Console())
