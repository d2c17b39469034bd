"""Processors, memory and disks, as far as this process may use them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from roll_core.findings import Finding, Level

GIB = 2**30
LITTLE_MEMORY_BYTES = 4 * GIB
"""The quickstart's processes together stay below it; a model of any use does not."""
LITTLE_DISK_BYTES = 10 * GIB
NO_DISK_BYTES = 1 * GIB
FULL_DISK = 0.95
"""Ray makes no more objects on a disk that is used to this share (its local_fs_capacity_threshold)."""
_CGROUP = Path("/sys/fs/cgroup")


def processor_findings(cgroup: Path = _CGROUP) -> Iterator[Finding]:
    """Cores this process may run on, and a container's share of them."""
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    found = f"{usable} cores" if usable == there else f"{usable} of {there} cores may be used"
    share = _processor_share(cgroup)
    if share is not None and share < usable:
        found += f", and the container's share is {share:g} of them"
        remedy = f"workers that count cores start too many threads: OMP_NUM_THREADS=1, or docker run --cpus={usable}"
        yield Finding(Level.WARNING, "processors", found, remedy)
    else:
        yield Finding(Level.OK, "processors", found)


def memory_findings(cgroup: Path = _CGROUP) -> Iterator[Finding]:
    """Main memory: the machine's, or a container's limit where that is less."""
    import psutil

    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    found = f"{_gib(available)} available of {_gib(total)}"
    limit = _number(cgroup / "memory.max")
    if limit is not None and limit < total:
        used = _number(cgroup / "memory.current") or 0
        available = min(available, max(0, limit - used))
        found = f"{_gib(available)} available of {_gib(limit)}, the container's limit (the machine has {_gib(total)})"
    if available < LITTLE_MEMORY_BYTES:
        remedy = "end other programs, or give the container more; a process that goes beyond it is killed"
        yield Finding(Level.WARNING, "memory", found, remedy)
    else:
        yield Finding(Level.OK, "memory", found)


def disk_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The disks that a run writes to: where it is started, and where Ray keeps its session and spilled objects."""
    ray = Path(environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    for subject, folder, more in (
        ("disk of this folder", Path.cwd(), "output_dir and checkpoint_config.output_dir on another disk"),
        ("disk of Ray's files", ray, "RAY_TMPDIR=<a folder on another disk>, and delete old /tmp/ray/session_*"),
    ):
        yield _disk(subject, folder, more)


def _disk(subject: str, folder: Path, remedy: str) -> Finding:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Finding(Level.ERROR, subject, f"{folder} cannot be read: {error.strerror}", "a folder that is there")
    found = f"{_gib(usage.free)} free of {_gib(usage.total)} at {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(Level.ERROR, subject, f"{folder} cannot be written by this user", remedy)
    if usage.free < NO_DISK_BYTES:
        return Finding(Level.ERROR, subject, found, remedy)
    if usage.free < LITTLE_DISK_BYTES or usage.used / max(1, usage.used + usage.free) > FULL_DISK:
        return Finding(Level.WARNING, subject, found, f"a checkpoint or Ray's spilled objects may fill it: {remedy}")
    return Finding(Level.OK, subject, found)


def _processor_share(cgroup: Path) -> float | None:
    """Cores that a container may keep busy; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
