"""The last lines of a run: what came of it, and where its files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roll_core.display.progress import duration


@dataclass(frozen=True)
class RunSummary:
    """How a run went. Accuracies are on held-out data, in [0, 1]; None where there was no validation."""

    title: str
    steps: int
    total_steps: int
    seconds: float
    before: float | None = None
    after: float | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[str] = ()


def summary_lines(summary: RunSummary) -> list[str]:
    """A run's summary as lines, with the files aligned."""
    lines = [f"{summary.title}: {summary.steps} of {summary.total_steps} steps in {duration(summary.seconds)}"]
    if summary.before is not None and summary.after is not None:
        gain = f"{100 * (summary.after - summary.before):+.1f} points"
        lines.append(f"  held-out accuracy: {summary.before:.1%} before, {summary.after:.1%} after ({gain})")
    elif summary.after is not None:
        lines.append(f"  held-out accuracy: {summary.after:.1%}")
    lines += [f"  {line}" for line in summary.results]
    width = max((len(label) for label in summary.files), default=0)
    return lines + [f"  {label + ':':<{width + 1}} {path}" for label, path in summary.files.items()]
