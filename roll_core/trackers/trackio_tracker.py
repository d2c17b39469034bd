"""Trackio: a database on this machine, or a Space on the Hugging Face Hub where one is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.trackers.base import NOT_FINITE, Metrics, RunInfo, Tracker


class TrackioTracker(Tracker):
    """One trackio run per run. With a `space_id` that cannot be reached it stays on this machine, with a warning."""

    needs = "trackio"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        dataset_id: str | None = None,
        tags: Sequence[str] | None = None,
        auto_log_gpu: bool = True,
        gpu_log_interval: float = 2.0,
    ) -> None:
        import trackio

        self._trackio = trackio
        config = dict(run.config) | ({"tags": list(tags)} if tags else {})
        arguments: dict[str, Any] = {
            "project": project or run.exp_name,
            "name": name or run.exp_name,
            "group": group,
            "config": config,
            "resume": "never" if run.resumed_step is None else "allow",
            "auto_log_gpu": auto_log_gpu,
            "gpu_log_interval": gpu_log_interval,
            "embed": False,
        }
        remote: Mapping[str, str | None] = {"space_id": space_id, "dataset_id": dataset_id}
        try:
            trackio.init(**arguments, **remote)
        # What its HTTP client raises depends on its version, so the class cannot be named.
        except Exception as error:
            if not any(remote.values()):
                raise
            run.warn(f"trackio: {space_id or dataset_id} cannot be reached ({error}); recorded on this machine only")
            trackio.init(**arguments)
        self.location = f"trackio show --project {arguments['project']}"

    def log(self, step: int, metrics: Metrics) -> None:
        """Record one step."""
        self._trackio.log({name: value for name, value in metrics.items() if value not in NOT_FINITE}, step=step)

    def close(self) -> None:
        """Write what is left and end the run."""
        self._trackio.finish()
