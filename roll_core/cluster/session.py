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
def open_session(platform: Platform, address: str | None = None, helper_cpus: int = 0) -> Iterator[Session]:
    """Join the cluster at `address` (or RAY_ADDRESS), else start a private one on this machine.

    A cluster that merely happens to run here is never joined: two runs on one machine must not meet.
    The private one ends with this process, however that ends, and has `helper_cpus` logical CPUs more than the machine:
    processes that ask Ray for one each may be more than that, as they mostly wait.

    Raises:
        RollError: the cluster cannot be reached or started.
    """
    import ray

    asked = address or os.environ.get("RAY_ADDRESS")
    namespace = f"roll-{uuid.uuid4().hex[:8]}"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Nothing is reported to anyone.
    # Ray starts a worker per core in advance. Ours have environments of their own, so they would never be used.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    options: dict[str, Any] = {"address": asked}
    if not asked:
        options = {"address": "local", "include_dashboard": False, **_local_resources(platform, helper_cpus)}
    try:
        ray.init(namespace=namespace, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # Ray raises nothing narrower where its node is not up after 30 s.
        raise RollError(_no_session(asked, error)) from error
    try:
        with nullcontext() if asked else guarded():
            yield Session(namespace, owned=not asked, address=asked or "local")
    finally:
        ray.shutdown()


def _no_session(asked: str | None, error: BaseException) -> str:
    from ray.exceptions import AuthenticationError

    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    # Ray tells the outermost reason alone, in most cases that it could not connect.
    told = "".join(f"\n  cause: {str(cause).splitlines()[0]}" for cause in causes if str(cause))
    action = f"join the Ray cluster at {asked}" if asked else "start Ray on this machine"
    advice = "check `ray status` there, or unset RAY_ADDRESS" if asked else "see the traceback of the cause"
    if "timed out during startup" in str(error):
        advice = "once more when the machine is less busy: Ray gives itself 30 s; logs are in /tmp/ray/session_latest"
    if any(isinstance(cause, AuthenticationError) or "AuthenticationError" in str(cause) for cause in causes):
        # A cluster asks for a token wherever its head found one, but a client sends it only if told to.
        advice = "RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token or where RAY_AUTH_TOKEN_PATH says"
    return f"cannot {action}{told}\n  try: {advice}"


def _local_resources(platform: Platform, helper_cpus: int) -> dict[str, Any]:
    # Workers ask for no CPUs (their number is the user's choice), so Ray's own count only bounds its helpers.
    options: dict[str, Any] = {"num_cpus": (os.cpu_count() or 1) + helper_cpus}
    if platform.ray_resource not in ("CPU", "GPU"):
        options["resources"] = {platform.ray_resource: platform.device_count()}
    return options
