"""Timing the parts of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Timers:
    """Seconds by name: `with timers("time/step_generate"): ...`. The same name again adds up."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of a `with` block to a name, whether the block ends or raises."""
        start = self._clock()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._clock() - start

    def take(self) -> dict[str, float]:
        """The seconds since the last `take`, by name; the count starts anew."""
        taken, self._seconds = self._seconds, {}
        return taken
