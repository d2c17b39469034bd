"""The parent's end of the scoring processes: starting the nursery, forking children, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.errors import RollError, WorkerDied
from roll_core.rewards.child import End, Fork, Setup, receive_message, send_message

_ENTRY = "import sys; from roll_core.rewards.child import main; main(int(sys.argv[1]))"
# Forking and killing take milliseconds; a machine that swaps may need longer.
_CONTROL_TIMEOUT_S = 60.0


@dataclass(eq=False)
class Child:
    """One scoring process. `process` is the nursery that forked it."""

    pid: int
    connection: socket.socket
    process: subprocess.Popen[bytes]

    def is_dead(self) -> bool:
        """Whether an idle child has closed its socket: an idle child has nothing to say."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


class Nursery:
    """Starts a reward's nursery process, and a new one if that dies. Safe to use from any thread."""

    def __init__(
        self, spec: str, options: Mapping[str, Any], memory_limit_bytes: int | None, start_timeout_s: float
    ) -> None:
        self._spec = spec
        self._options = dict(options)
        self._memory_limit_bytes = memory_limit_bytes
        self._start_timeout_s = start_timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Load the reward, unless that is done.

        Raises:
            RollError: the reward cannot be loaded, or not within `start_timeout_s`.
        """
        with self._lock:
            self._start()

    def fork(self) -> Child:
        """A new scoring process."""
        with self._lock:
            self._start()
            try:
                return self._fork()
            except (OSError, EOFError):
                # Someone killed the nursery. It holds nothing but the loaded reward, so another one will do.
                self._stop()
                self._start()
                return self._fork()

    def end(self, child: Child) -> int | None:
        """Kill a child, with whatever it started; returns its wait status where that is known."""
        child.connection.close()
        with self._lock:
            if self._control is None or child.process is not self._process:
                return None
            try:
                send_message(self._control, End(child.pid))
                status: int | None = receive_message(self._control)
                return status
            except (OSError, EOFError):
                self._stop()
                return None

    def stop(self) -> None:
        """End the nursery and all its children. May be called again."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        ours, theirs = socket.socketpair()
        # The child must find what this process finds, also where sys.path was changed after start-up.
        paths = [path or str(Path.cwd()) for path in sys.path]
        self._process = subprocess.Popen(
            # -P: a file of the working directory that has a standard module's name must not take its place.
            [sys.executable, "-u", "-P", "-c", _ENTRY, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            # What a reward prints must not mix with what this process writes for other programs to read.
            stdout=2,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            # Ctrl-C in a terminal goes to the run, which then ends its children in order.
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        self._load(ours, paths)

    def _load(self, control: socket.socket, paths: list[str]) -> None:
        control.settimeout(self._start_timeout_s)
        try:
            send_message(control, Setup(self._spec, self._options, paths, self._memory_limit_bytes, os.getpid()))
            problem: str | None = receive_message(control)
        except TimeoutError:
            # It has no children yet, and does not listen.
            self._stop(patience_s=0.0)
            raise RollError(f"reward '{self._spec}' was not loaded within {self._start_timeout_s:g} s") from None
        except (OSError, EOFError):
            status = self._stop()
            raise WorkerDied(f"the process that loads reward '{self._spec}' died ({describe_exit(status)})") from None
        if problem is not None:
            self._stop()
            raise RollError(problem)
        control.settimeout(_CONTROL_TIMEOUT_S)

    def _fork(self) -> Child:
        if self._control is None or self._process is None:
            raise EOFError("the nursery is stopped")
        ours, theirs = socket.socketpair()
        try:
            send_message(self._control, Fork())
            socket.send_fds(self._control, [b"F"], [theirs.fileno()])
            pid: int = receive_message(self._control)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return Child(pid, ours, self._process)

    def _stop(self, patience_s: float = 5.0) -> int | None:
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if process is None:
            return None
        try:
            # Closing the socket is the request to end; the nursery kills its children first.
            return process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return process.wait()


def describe_exit(status: int | None) -> str:
    """A process's end in words, from `subprocess` style codes: negative ones are signals."""
    if status is None:
        return "cause unknown"
    if status < 0:
        try:
            return f"killed by signal {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exit code {status}"
