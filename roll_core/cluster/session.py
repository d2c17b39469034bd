"""Bringing Ray up, and taking down what was brought up."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from roll_core.cluster.guard import guarded
from roll_core.errors import RollError
from roll_core.platforms import Platform

START_TIMEOUT_S = 120


@dataclass(frozen=True)
class Session:
    """A connection to Ray. `owned` means this run started the cluster and ends it."""

    namespace: str
    owned: bool
    address: str


@contextmanager
def open_session(platform: Platform, address: str | None = None) -> Iterator[Session]:
    """Join the cluster at `address` (or RAY_ADDRESS), else start a private one on this machine.

    A cluster that merely happens to run here is never joined: two runs on one machine must not meet.
    The private one ends with this process, however that ends.

    Raises:
        RollError: the cluster cannot be reached or started.
    """
    import ray

    asked = address or os.environ.get("RAY_ADDRESS")
    namespace = f"roll-{uuid.uuid4().hex[:8]}"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Nothing is reported to anyone.
    try:
        if asked:
            ray.init(address=asked, namespace=namespace, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(
                address="local",
                namespace=namespace,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                **_local_resources(platform),
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        action = f"join the Ray cluster at {asked}" if asked else "start Ray on this machine"
        advice = "check `ray status` there, or unset RAY_ADDRESS" if asked else "see the traceback of the cause"
        raise RollError(f"cannot {action}\n  cause: {error}\n  try: {advice}") from error
    try:
        with nullcontext() if asked else guarded():
            yield Session(namespace, owned=not asked, address=asked or "local")
    finally:
        ray.shutdown()


def _local_resources(platform: Platform) -> dict[str, Any]:
    # Workers ask for no CPUs (their number is the user's choice), so Ray's own count only bounds its helpers.
    options: dict[str, Any] = {"num_cpus": os.cpu_count() or 1}
    if platform.ray_resource not in ("CPU", "GPU"):
        options["resources"] = {platform.ray_resource: platform.device_count()}
    return options
