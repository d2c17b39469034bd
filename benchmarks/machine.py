"""What the benchmarks know of the machine: what processes use of it, how busy it is, which versions are there."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
QUIET = {
    # More threads than idle cores make every figure noise.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""Environment of everything that is measured."""


def tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def tree_cpu_seconds(pid: int) -> float:
    """Processor seconds of a process tree so far, those of descendants that have ended included."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def peak_memory_bytes(pid: int) -> int:
    """Memory of a process tree now; pages that processes share are counted once."""
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def load_average() -> float:
    """Processes that wanted to run, over the last minute."""
    return os.getloadavg()[0]


def busy_cores(seconds: float = 1.0) -> float:
    """Cores that are in use right now."""
    return psutil.cpu_percent(seconds) / 100 * (psutil.cpu_count() or 1)


def describe(packages: Iterable[str]) -> dict[str, Any]:
    """The machine, the versions and the commit, for the record of a run."""
    return {
        "machine": {"processor": processor(), "cores": psutil.cpu_count(), "python": platform.python_version()},
        "versions": {name: _version(name) for name in packages},
        "commit": _commit(),
        "load_average": load_average(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_record(name: str, packages: Iterable[str], results: Mapping[str, Any]) -> Path:
    """Keep a run's figures under .cache/benchmarks."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.json"
    path.write_text(json.dumps({**describe(packages), "results": results}, indent=2) + "\n")
    return path


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
