"""All trackers of a run as one: what fails in one of them is shown, and stops neither the others nor the training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from roll_core.trackers.base import NOT_FINITE, Tracker
from roll_core.trackers.plain import plain_metrics

MAX_FAILURES_IN_A_ROW = 5
"""A tracker that failed this often in a row is left alone, since each failure may cost a network timeout."""


class RunTrackers:
    """Hands each step to every tracker. `warn` shows the user a sentence."""

    def __init__(self, trackers: Mapping[str, Tracker], warn: Callable[[str], None]) -> None:
        self._trackers = dict(trackers)
        self._warn = warn
        self._not_finite: set[str] = set()
        self._failures_in_a_row: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record one step. Names lose their `@tag`; a number that is not finite is warned about, once per name.

        Raises:
            TypeError: a value is neither a number nor text.
        """
        plain = plain_metrics(metrics)
        for name, value in plain.items():
            if value in NOT_FINITE and name not in self._not_finite:
                self._not_finite.add(name)
                self._warn(f"metric {name} is {value} at step {step}")
        for name, tracker in self._trackers.items():
            self._log_one(name, tracker, step, plain)

    def _log_one(self, name: str, tracker: Tracker, step: int, plain: dict[str, float | int | str]) -> None:
        if self._failures_in_a_row[name] >= MAX_FAILURES_IN_A_ROW:
            self._lost[name] += 1
            return
        try:
            tracker.log(step, plain)
            self._failures_in_a_row[name] = 0
        # A tracking library may raise anything, and no record is worth a training run.
        except Exception as error:
            self._failures_in_a_row[name] += 1
            self._lost[name] += 1
            if self._lost[name] == 1:
                self._warn(_shown(f"tracker {name} could not record step {step}; training goes on", error))
            if self._failures_in_a_row[name] == MAX_FAILURES_IN_A_ROW:
                self._warn(
                    f"tracker {name} failed {MAX_FAILURES_IN_A_ROW} times in a row and is left alone from here on"
                )

    @property
    def locations(self) -> dict[str, str]:
        """Where each tracker's records are, by tracker."""
        return {name: tracker.location for name, tracker in self._trackers.items() if tracker.location}

    def close(self) -> None:
        """Close every tracker, in the thread that opened them: some libraries insist on it.

        A service may upload for as long as its library sees fit, so free the run's devices first.
        """
        for name, tracker in self._trackers.items():
            try:
                tracker.close()
            except Exception as error:
                self._warn(_shown(f"tracker {name} could not be closed", error))
            if self._lost[name]:
                self._warn(f"tracker {name} did not record {self._lost[name]} steps")


def _shown(what: str, error: Exception) -> str:
    return f"{what}: {type(error).__name__}: {error}"
