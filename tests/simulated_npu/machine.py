"""Processes on a machine that has simulated NPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulated_npu.build import build

REPOSITORY = Path(__file__).parents[2]
SITE = Path(__file__).parent / "site"


def environment(devices: str = "8", **more: str) -> dict[str, str]:
    """The environment in which a bare `import torch` has that many devices, or those with the ids given.

    Builds the device first, and raises where it cannot: without a compiler its tests fail, they are not skipped.
    """
    build()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "ROLL_"))}
    path = os.pathsep.join([str(SITE), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"PYTHONPATH": path, "SIMULATED_NPU_DEVICES": devices, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return kept | settings | more


def run(*arguments: str, timeout_s: float = 240, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on such a machine, to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(**environ),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
