"""What a worker process is told when it starts. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.context import WorkerContext

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig


@dataclass(frozen=True)
class WorkerSpec:
    """One worker: who it is, which classes it needs, and where it logs.

    `platform_target` and `strategy_target` are "pkg.mod:Class", resolved on the driver; `plugins` are the
    versions the driver loaded them from, which the worker's node must match. Relative paths of the config start
    at `working_dir`, the driver's.
    """

    context: WorkerContext
    role: WorkerConfig
    platform_target: str
    strategy_target: str
    plugins: Mapping[str, str]
    log_file: Path
    working_dir: Path

    @property
    def name(self) -> str:
        """Role and rank, as it stands in logs and messages."""
        return f"{self.context.role}-{self.context.rank}"
