"""A run as a panel at the bottom of the terminal, with everything else that is printed above it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from roll_core.display.plain import notice_marks, printable
from roll_core.display.progress import Progress, duration

PART_COLORS = ("cyan", "magenta", "green", "yellow", "blue", "red")
PARTS_SHOWN = 6
REFRESHES_PER_S = 4


class LiveView:
    """Redraws the panel as the progress changes. While it is up, what other code prints appears above it."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._has_blocks = console.encoding.startswith("utf")
        self._spinner = Spinner("dots" if self._has_blocks else "line")
        self._live = Live(
            get_renderable=self._panel, console=console, refresh_per_second=REFRESHES_PER_S, transient=False
        )
        self._redirected: list[tuple[logging.StreamHandler[IO[str]], IO[str]]] = []

    def start(self) -> None:
        """Draw the panel and take over standard output and error, also for handlers that hold on to them."""
        streams = (sys.stdout, sys.stderr)
        self._live.start()
        for handler in _stream_handlers():
            if handler.stream in streams:
                self._redirected.append((handler, handler.stream))
                handler.setStream(sys.stdout if handler.stream is streams[0] else sys.stderr)

    def refresh(self, *, step_finished: bool = False) -> None:
        """Redraw now."""
        self._live.refresh()

    def write(self, lines: Sequence[str], *, is_notice: bool = False) -> None:
        """Print lines above the panel."""
        for mark, line in zip(notice_marks(is_notice), lines):
            text = printable(line, self._console.encoding)
            self._console.print(Text.assemble((mark, "bold yellow"), text), soft_wrap=True)

    def stop(self) -> None:
        """Leave the last state of the panel on the screen and give the streams back."""
        for handler, stream in self._redirected:
            handler.setStream(stream)
        self._redirected.clear()
        self._progress.phase = ""
        self._live.stop()

    def _panel(self) -> Panel:
        progress = self._progress
        numbers = Text("  ").join(
            Text.assemble((f"{label} ", "dim"), (value, "bold")) for label, value in progress.shown.items()
        )
        rows: list[RenderableType] = [self._bar(), numbers]
        if progress.time_shares:
            rows.append(self._times())
        if progress.last_checkpoint:
            rows.append(Text.assemble(("checkpoint ", "dim"), progress.last_checkpoint, overflow="fold"))
        return Panel(Group(*rows), title=Text(progress.title, style="bold"), title_align="left", border_style="dim")

    def _bar(self) -> Table:
        progress = self._progress
        row = Table.grid(padding=(0, 1))
        cells: list[Text | ProgressBar | Spinner] = [
            Text(f"step {progress.step}/{progress.total_steps}", style="bold"),
            ProgressBar(total=max(1, progress.total_steps), completed=progress.step, width=24),
            Text(f"elapsed {duration(progress.elapsed_s)}  eta {duration(progress.eta_s)}"),
        ]
        if progress.phase:
            self._spinner.update(text=Text(progress.phase, style="cyan"))
            cells.append(self._spinner)
        row.add_row(*cells)
        return row

    def _times(self) -> Text:
        """Where the time of a step goes: a bar cut into its parts, then their names in the same colours."""
        shares = list(self._progress.time_shares.items())[:PARTS_SHOWN]
        width = max(10, min(40, self._console.width - 30))
        bar, names = Text(), Text()
        for (name, share), color in zip(shares, PART_COLORS):
            bar.append(("\u2588" if self._has_blocks else "#") * round(share * width), style=color)
            names.append(f"  {name} {share:.0%}", style=color)
        return Text.assemble(("time ", "dim"), bar, names)


def _stream_handlers() -> Iterator[logging.StreamHandler[IO[str]]]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else []:
            if isinstance(handler, logging.StreamHandler):
                yield handler
