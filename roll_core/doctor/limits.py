"""What the operating system lets this user's processes have: open files, processes, shared memory."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from roll_core.findings import Finding, Level

ENOUGH_FILES = 65536
"""What ROLL's guide gives its containers: every connection between Ray's processes is an open file."""
ENOUGH_PROCESSES = 4096
GIB = 2**30
_SHARED_MEMORY = Path("/dev/shm")
_OBJECT_STORE_SHARE = 0.3
"""Ray's object store asks for this share of the memory."""


def limit_findings() -> Iterator[Finding]:
    """Open files and processes. Ray raises the soft limit of open files to the hard one, so the hard one counts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _limit(
        "open files",
        f"{_shown(hard)} (now {_shown(soft)}; Ray raises it)",
        hard,
        ENOUGH_FILES,
        f"ulimit -n {ENOUGH_FILES}, or docker run --ulimit nofile={ENOUGH_FILES}:{ENOUGH_FILES}",
    )
    soft, _hard = resource.getrlimit(resource.RLIMIT_NPROC)
    yield _limit("processes", _shown(soft), soft, ENOUGH_PROCESSES, "ulimit -u unlimited, or the limits of this user")


def shared_memory_findings(folder: Path = _SHARED_MEMORY) -> Iterator[Finding]:
    """/dev/shm, where Ray keeps objects and where processes of torch meet."""
    import psutil

    subject = str(folder)
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        yield Finding(Level.ERROR, subject, f"cannot be read: {error.strerror}", "mount -t tmpfs tmpfs /dev/shm")
        return
    found = f"{usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f} GiB"
    wanted = int(psutil.virtual_memory().available * _OBJECT_STORE_SHARE)
    if usage.free < min(wanted, 2 * GIB):
        size = max(2, round(wanted / GIB))
        remedy = f"docker run --ipc=host, or --shm-size={size}g; until then Ray keeps objects in files, which is slow"
        yield Finding(Level.WARNING, subject, found, remedy)
    else:
        yield Finding(Level.OK, subject, found)


def _limit(subject: str, found: str, value: int, enough: int, remedy: str) -> Finding:
    if value == resource.RLIM_INFINITY or value >= enough:
        return Finding(Level.OK, subject, found)
    return Finding(Level.WARNING, subject, f"{found}; several workers may need {enough}", remedy)


def _shown(value: int) -> str:
    return "no limit" if value == resource.RLIM_INFINITY else str(value)
