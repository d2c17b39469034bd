"""Users of their own for programs that root runs without namespaces, so that the kernel counts their processes.

Root is exempt from the limit on processes, and what a fork bomb leaves is too much and too quick to be searched for.
All processes of a user that nobody else has can be ended by one call, which no fork gets away from.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_FIRST = 1_610_612_736
"""Above what distributions and their subordinate ranges give out."""
_AT_ONCE = 16
"""Programs of one process whose users differ; it runs one or two at a time."""

# From the kernel's headers: linux/prctl.h and linux/capability.h.
_KEEP_RIGHTS, _RIGHT_AFTER_EXEC, _RAISE = 8, 47, 2
_MAY_READ, _VERSION = 2, 0x20080522


def number(count: int) -> int:
    """A user for the count-th program of this process, which no program of another process has at the same time."""
    return _FIRST + os.getpid() % 2**20 * _AT_ONCE + count % _AT_ONCE


def become(c: ctypes.CDLL, user: int, home: Path) -> None:
    """Become a user, for good, who owns its home and all in it, and has none of root's rights but to read.

    What root installed may lie where nobody else may look, Python itself included: hence that one right.

    Raises:
        OSError: this process may not, as in a container whose users are few.
    """
    for path in (home, *home.iterdir()):
        os.chown(path, user, user)
    _check(c.prctl(_KEEP_RIGHTS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    right = 1 << _MAY_READ
    _check(c.capset((ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)(right, right, right, 0, 0, 0)), "capset")
    _check(c.prctl(_RIGHT_AFTER_EXEC, _RAISE, _MAY_READ, 0, 0), "prctl")


def end_all(user: int) -> None:
    """End every process of a user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
