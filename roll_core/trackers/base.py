"""The seam for trackers: where the numbers of each step go."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

Metrics: TypeAlias = Mapping[str, float | int | str]
"""One step's metrics by name. A number that is not finite comes as the text "nan", "inf" or "-inf"."""

NOT_FINITE = frozenset({"nan", "inf", "-inf"})

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunInfo:
    """What a tracker may know of the run. `config` comes with its secrets removed.

    `run_dir` holds the run's own records (metrics.jsonl); `resumed_step` is the last step of the checkpoint that
    the run goes on from, None for a start from scratch. `warn` shows the user a sentence.
    """

    exp_name: str
    output_dir: Path
    run_dir: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    resumed_step: int | None = None
    warn: Callable[[str], None] = logger.warning


class Tracker(ABC):
    """Takes the metrics of one step at a time.

    A subclass is made with `RunInfo` first; its further keyword arguments are the keys it takes from
    `tracker_kwargs`. Whatever it raises later is shown to the user once and never stops the training.
    """

    needs: ClassVar[str] = ""
    """A package outside roll-core's dependencies that must be installed: its name for import and for pip."""

    location: str = ""
    """Where the user finds what was tracked: a path or an address."""

    @abstractmethod
    def log(self, step: int, metrics: Metrics) -> None:
        """Record one step."""

    def close(self) -> None:
        """Write what is still held back."""
