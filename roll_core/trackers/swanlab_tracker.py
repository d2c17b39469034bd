"""SwanLab: online where there is a login and a network, else as files to be uploaded later."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.trackers.base import Metrics, RunInfo, Tracker


class SwanlabTracker(Tracker):
    """One SwanLab experiment per start of the run.

    Without `mode` (or SWANLAB_MODE) it is online where a login is found, else offline, with a warning. A login is
    `login_kwargs`, SWANLAB_API_KEY, or what `swanlab login` left in the home folder.
    """

    needs = "swanlab"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        workspace: str | None = None,
        experiment_name: str | None = None,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        logdir: str | None = None,
        login_kwargs: Mapping[str, Any] | None = None,
        mode: str | None = None,
    ) -> None:
        import swanlab

        self._swanlab = swanlab
        folder = Path(logdir) if logdir else run.run_dir / "swanlab"
        folder.mkdir(parents=True, exist_ok=True)
        arguments: dict[str, Any] = {
            "project": project or run.exp_name,
            "workspace": workspace,
            "experiment_name": experiment_name or run.exp_name,
            "description": description,
            "tags": list(tags) if tags else None,
            "logdir": str(folder),
            "config": dict(run.config),
        }
        mode = mode or os.environ.get("SWANLAB_MODE")
        if mode is None and not login_kwargs and not _has_login():
            # Asked to go online without a login, swanlab would stop and wait for a key to be typed in.
            run.warn("swanlab: no login found; recorded offline, to be uploaded with `swanlab sync`")
            mode = "offline"
        try:
            if login_kwargs and mode not in ("offline", "local", "disabled"):
                swanlab.login(**login_kwargs)
            swanlab.init(**arguments, mode=mode)
        # What it raises without a network depends on its version, so the class cannot be named.
        except Exception as error:
            if mode in ("offline", "local", "disabled"):
                raise
            run.warn(f"swanlab: {error}\n  recorded offline, to be uploaded with `swanlab sync`")
            swanlab.init(**arguments, mode="offline")
        self.location = str(folder)

    def log(self, step: int, metrics: Metrics) -> None:
        """Hand one step to swanlab. Text is left out: it has no place in its charts."""
        numbers = {name: value for name, value in metrics.items() if not isinstance(value, str)}
        self._swanlab.log(numbers, step=step)

    def close(self) -> None:
        """Upload what is left and end the experiment."""
        self._swanlab.finish()


def _has_login() -> bool:
    if os.environ.get("SWANLAB_API_KEY"):
        return True
    folder = Path(os.environ.get("SWANLAB_SAVE_DIR") or "~/.swanlab").expanduser()
    return (folder / ".netrc").is_file()
