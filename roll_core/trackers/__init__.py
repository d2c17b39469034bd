"""Where the numbers of a run go: metrics.jsonl always, and what `track_with` names beside it."""

from roll_core.trackers.base import Metrics, RunInfo, Tracker
from roll_core.trackers.jsonl import read_metrics
from roll_core.trackers.opening import BUILTIN_TRACKERS, open_trackers, tracker_problems
from roll_core.trackers.redact import redact
from roll_core.trackers.run_trackers import RunTrackers
from roll_core.trackers.timers import Timers

__all__ = [
    "BUILTIN_TRACKERS",
    "Metrics",
    "RunInfo",
    "RunTrackers",
    "Timers",
    "Tracker",
    "open_trackers",
    "read_metrics",
    "redact",
    "tracker_problems",
]
