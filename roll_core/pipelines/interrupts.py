"""Stopping a run from outside: Ctrl-C, or the signal that a batch system sends before it kills."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While `listening`, a signal raises KeyboardInterrupt with its name: at once, or after `hold` at `release`.

    A second signal never waits.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._is_held = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside the block. Only a main thread can; elsewhere nothing changes.

        To be entered after Ray was started: Ray answers SIGTERM by ending the process with a stack trace.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def hold(self) -> None:
        """From now on a first signal waits for `release`."""
        self._is_held = True

    def release(self) -> None:
        """The run can be left again.

        Raises:
            KeyboardInterrupt: a signal was waiting.
        """
        self._is_held = False
        if self.received is not None:
            raise KeyboardInterrupt(self.received.name)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first, self.received = self.received is None, signal.Signals(number)
        if not self._is_held or not is_first:
            raise KeyboardInterrupt(self.received.name)
        # Not through Python's streams: the signal may have come in the middle of a write to them.
        text = f"\n{self.received.name}: stopping when this step has ended; once more to stop at once\n"
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
