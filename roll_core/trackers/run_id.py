"""The identity of a run at a tracking service, kept so that a resumed run continues there."""

from __future__ import annotations

import uuid

from roll_core.trackers.base import RunInfo


def run_id(run: RunInfo, service: str) -> str:
    """The id in `<run_dir>/<service>_id.txt` for a run that goes on from a checkpoint, else a new one, kept there."""
    path = run.run_dir / f"{service}_id.txt"
    if run.resumed_step is not None and path.is_file():
        return path.read_text(encoding="utf-8").strip()
    return new_run_id(run, service)


def new_run_id(run: RunInfo, service: str) -> str:
    """A new id, kept in place of the one before."""
    path = run.run_dir / f"{service}_id.txt"
    new = uuid.uuid4().hex[:12]
    run.run_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")
    return new
