"""Where a worker stands among its peers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerContext:
    """Facts about one worker process that its strategy needs. Plain data: it travels to the worker.

    `timeout_s` bounds every collective and every wait. `master_port` 0 means a single-process role.
    """

    role: str
    rank: int = 0
    world_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    seed: int = 42
    timeout_s: float = 1800.0
    run_dir: str = "."
