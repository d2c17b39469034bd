"""A small process that outlives a killed driver just long enough to end what Ray would leave behind.

Ray 2.60's own agents notice the death of their node only after a minute; until then they hold its ports. Run as
`python -m roll_core.cluster.guard`; it reads "PID START_TIME" lines, and ends those processes when its input ends
without the line "done". It imports nothing but psutil.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psutil

DONE = "done"


@contextmanager
def guarded() -> Iterator[None]:
    """See that the processes below this one, as they are now, end with it, even if it is killed inside the block."""
    children = [child for child in psutil.Process().children(recursive=True) if child.is_running()]
    guard = subprocess.Popen(
        [sys.executable, "-m", "roll_core.cluster.guard"], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    assert guard.stdin is not None
    guard.stdin.write("".join(f"{child.pid} {child.create_time()}\n" for child in children))
    guard.stdin.flush()
    try:
        yield
    finally:
        try:
            guard.stdin.write(f"{DONE}\n")
            guard.stdin.close()
        except BrokenPipeError:
            pass  # Somebody killed the guard.
        guard.wait(timeout=10)


def end(lines: Iterable[str]) -> None:
    """Kill the processes that the lines name, unless a line says that all is done.

    The start time tells a process from a later one with the same id.
    """
    named: list[tuple[int, float]] = []
    for line in lines:
        if line.strip() == DONE:
            return
        id_text, time_text = line.split()
        named.append((int(id_text), float(time_text)))
    for pid, start_time in named:
        try:
            process = psutil.Process(pid)
            if process.create_time() == start_time:
                process.kill()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    end(sys.stdin)
