"""How far a run is: what both the live display and the plain lines show."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STEPS_FOR_ETA = 20
"""The time left is told from the last so many steps: steps get slower as responses get longer."""

# The first of these metrics that a step has is shown, with its label and format.
SHOWN_METRICS = (
    ("reward", ("reward/mean", "critic/score/mean"), "{:.3f}"),
    ("accuracy", ("val_correct/all/mean",), "{:.1%}"),
    ("length", ("response_length/mean", "token/response_length/mean"), "{:.0f}"),
    ("tokens/s", ("system/tps/tps", "system/tps"), "{:,.0f}"),
    ("loss", ("train/loss", "actor/total_loss"), "{:.4f}"),
)

TOTAL_TIME = "time/step_total"


@dataclass
class Progress:
    """What is known of a run so far. `step` counts finished steps, so 0 is the state before the first."""

    total_steps: int
    """Below 0 where it is not known yet."""
    title: str
    clock: Callable[[], float] = time.monotonic
    step: int = 0
    phase: str = "starting"
    last_checkpoint: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    first_accuracy: float | None = None
    last_accuracy: float | None = None
    time_shares: dict[str, float] = field(default_factory=dict)
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_FOR_ETA))

    def __post_init__(self) -> None:
        self._start = self._last = self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run's display began."""
        return self.clock() - self._start

    @property
    def eta_s(self) -> float | None:
        """Seconds left, judged from the steps so far; None before the first is finished."""
        if not self._seconds:
            return None
        return sum(self._seconds) / len(self._seconds) * max(0, self.total_steps - self.step)

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take in a finished step. Values of earlier steps stay where this one has none, such as the accuracy."""
        now = self.clock()
        if step > 0:
            # The first step's own time: before it, workers started and models were read.
            own = None if self._seconds else _first(metrics, [TOTAL_TIME])
            self._seconds.append(now - self._last if own is None else own)
        self._last, self.step = now, step
        values = {label: value for label, names, _ in SHOWN_METRICS if (value := _first(metrics, names)) is not None}
        if "accuracy" in values:
            self.last_accuracy = values["accuracy"]
            if self.first_accuracy is None:
                self.first_accuracy = values["accuracy"]
        new = {label: form.format(values[label]) for label, _, form in SHOWN_METRICS if label in values}
        merged = self.shown | new
        # Dicts are replaced, never changed: the thread that redraws the panel may be going through them.
        self.shown = {label: merged[label] for label, _, _ in SHOWN_METRICS if label in merged}
        self.time_shares = _time_shares(metrics) or self.time_shares


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: 8s, 3m05s, 2h10m, 4d07h."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller_size:02d}{smaller}"
    return f"{whole}s"


def _time_shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Share of the step's time by part, largest first; what no part accounts for is "other".

    Only names with one slash are parts; `time/actor_train/train_step/total` is inside one of them.
    """
    parts = {
        name.removeprefix("time/").removeprefix("step_"): float(value)
        for name, value in metrics.items()
        if name.startswith("time/") and name.count("/") == 1 and name != TOTAL_TIME and _is_number(value) and value > 0
    }
    known = sum(parts.values())
    total = float(metrics[TOTAL_TIME]) if _is_number(metrics.get(TOTAL_TIME)) else known
    if total > known:
        parts["other"] = total - known
    total = max(total, known)
    return {name: seconds / total for name, seconds in sorted(parts.items(), key=lambda part: -part[1])}


def _first(metrics: Mapping[str, Any], names: Sequence[str]) -> float | None:
    return next((float(metrics[name]) for name in names if _is_number(metrics.get(name))), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
