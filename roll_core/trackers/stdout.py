"""Metrics as lines on the terminal."""

from __future__ import annotations

from roll_core.trackers.base import Metrics, RunInfo, Tracker


class StdoutTracker(Tracker):
    """Prints each step on a line: the step, then every metric as name=value."""

    location = "standard output"

    def __init__(self, run: RunInfo) -> None:
        self._exp_name = run.exp_name

    def log(self, step: int, metrics: Metrics) -> None:
        """Print one line."""
        shown = (
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in metrics.items()
        )
        print(f"[{self._exp_name}] step {step}", *shown, flush=True)
