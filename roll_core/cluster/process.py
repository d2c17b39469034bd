"""What every worker process does first: its log, its platform, its classes."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from roll_core.cluster.spec import WorkerSpec
from roll_core.platforms import Platform
from roll_core.plugins import compare_fingerprints, load_plugins

log = logging.getLogger(__name__)


def prepare(spec: WorkerSpec) -> Platform:
    """Send this process's output to its own log, check the node's plugins, make and set up the platform.

    Raises:
        PluginError: this node has other plugin versions than the driver.
    """
    redirect_output(spec.log_file)
    logging.basicConfig(
        level=os.environ.get("ROLL_LOG_LEVEL", "INFO"),
        format=f"%(asctime)s {spec.name} %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    faulthandler.enable()
    log.info("process %d on %s", os.getpid(), socket.gethostname())
    enter(spec.working_dir)
    compare_fingerprints(dict(spec.plugins), load_plugins().fingerprint(), socket.gethostname())
    platform: Platform = load_target(spec.platform_target)()
    platform.setup()
    return platform


def enter(working_dir: Path) -> None:
    """Go to the driver's working directory: a cluster that was joined starts its workers in its own."""
    if working_dir.is_dir():
        os.chdir(working_dir)
    else:
        log.warning("no folder %s on this node: relative paths start at %s", working_dir, Path.cwd())


def load_target(target: str) -> Any:
    """The thing that "pkg.mod:thing" names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def redirect_output(log_file: Path) -> None:
    """Append everything this process prints, native libraries included, to a file."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def free_port() -> int:
    """A port that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
