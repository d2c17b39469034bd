"""Weights & Biases: online where there is a login and a network, else as files to be uploaded later."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.trackers.base import NOT_FINITE, Metrics, RunInfo, Tracker
from roll_core.trackers.run_id import new_run_id, run_id

INIT_TIMEOUT_S = 30


class WandbTracker(Tracker):
    """One wandb run per run; a run that goes on from a checkpoint continues its wandb run.

    Without `mode` (or WANDB_MODE) it is online where a login is found, else offline, with a warning. A login is
    `api_key`, WANDB_API_KEY, or what `wandb login` left in the netrc file.
    """

    needs = "wandb"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        entity: str | None = None,
        name: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | None = None,
        log_dir: str | None = None,
        api_key: str | None = None,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        import wandb

        folder = Path(log_dir) if log_dir else run.run_dir
        folder.mkdir(parents=True, exist_ok=True)
        arguments: dict[str, Any] = {
            "project": project or run.exp_name,
            "entity": entity,
            "name": name or run.exp_name,
            "notes": notes,
            "tags": list(tags) if tags else None,
            "dir": str(folder),
            "config": dict(run.config),
            "id": run_id(run, "wandb"),
            "resume": "allow",
        }
        options: dict[str, Any] = {"console": "off", "init_timeout": INIT_TIMEOUT_S, "api_key": api_key}
        arguments["settings"] = wandb.Settings(**(options | dict(settings or {})))
        mode = mode or os.environ.get("WANDB_MODE")
        if mode is None and not api_key and not _has_login():
            # Asked to go online without a login, wandb would stop and wait for a key to be typed in.
            run.warn("wandb: no login found; recorded offline, to be uploaded with `wandb sync`")
            mode = "offline"
        try:
            self._run = wandb.init(**arguments, mode=mode)
        # What it raises without a network depends on its version, so the class cannot be named.
        except Exception as error:
            if mode in ("offline", "disabled"):
                raise
            run.warn(f"wandb: {error}\n  recorded offline, to be uploaded with `wandb sync`")
            # wandb holds on to the id of the attempt that failed.
            arguments["id"] = new_run_id(run, "wandb")
            self._run = wandb.init(**arguments, mode="offline")
        self.location = self._run.url or str(Path(self._run.dir).parent)

    def log(self, step: int, metrics: Metrics) -> None:
        """Hand one step to wandb's own process, which uploads it when it can."""
        self._run.log({name: value for name, value in metrics.items() if value not in NOT_FINITE}, step=step)

    def close(self) -> None:
        """Upload what is left and end the wandb run."""
        self._run.finish()


def _has_login() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        hosts = netrc.netrc(str(path)).hosts
    except (OSError, netrc.NetrcParseError):
        return False
    own_server = os.environ.get("WANDB_BASE_URL", "").partition("://")[2].partition("/")[0]
    return any("wandb" in host or host == own_server for host in hosts)
