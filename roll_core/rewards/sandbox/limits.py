"""What a program may use."""

from __future__ import annotations

import resource
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Hard limits of one program. Seconds are of the wall clock and of the processor; the rest is bytes and counts."""

    wall_s: float = 8.0
    cpu_s: int = 8
    memory_bytes: int = 1024 * MIB
    file_bytes: int = 16 * MIB
    disk_bytes: int = 64 * MIB
    output_bytes: int = 8 * MIB
    processes: int = 32
    open_files: int = 128


def apply(limits: Limits) -> None:
    """Put this process, and whatever it starts, under the limits that the kernel keeps."""
    pairs = (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    )
    for which, most in pairs:
        ceiling = resource.getrlimit(which)[1]
        bound = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(which, (bound, bound))
