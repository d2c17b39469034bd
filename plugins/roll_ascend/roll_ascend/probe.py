"""Whether an NPU can be used on this machine, found out without importing torch here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from roll_core import Availability

VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
DEVICE_FOLDER = Path("/dev")
TIMEOUT_S = 60.0

COUNT_DEVICES = "import torch_npu, torch; print(torch.npu.device_count())"


def probe_npu() -> Availability:
    """Device files and an installed torch_npu are taken for a yes.

    Where torch_npu is there and no device file is (a head node, or an image run without its devices), a fresh
    interpreter imports it and counts: torch_npu on such a machine often fails to import at all, with an error that
    names the library it lacks, and that is the reason worth showing. Only such machines pay the seconds it takes.
    """
    files = sorted(DEVICE_FOLDER.glob("davinci[0-9]*"))
    shown = f"{len(files)} device files {files[0]} ..." if files else f"no device file {DEVICE_FOLDER}/davinci*"
    if os.environ.get(VISIBLE_DEVICES, "all").strip() == "":
        return Availability(False, f"{VISIBLE_DEVICES} is empty, which hides every device ({shown})")
    if importlib.util.find_spec("torch_npu") is None:
        return Availability(False, f"torch_npu is not installed ({shown})")
    if files:
        return Availability(True, f"{shown}, and torch_npu is installed")
    return _count_in_a_fresh_interpreter(shown)


def _count_in_a_fresh_interpreter(shown: str) -> Availability:
    # torch would import torch_npu by itself and report its failure without the cause.
    environ = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", COUNT_DEVICES]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Availability(False, f"{shown}, and importing torch_npu took more than {TIMEOUT_S:.0f} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Availability(False, f"{shown}, and torch_npu cannot be imported: {lines[-1].strip()}")
    count = done.stdout.split()[-1]
    return Availability(count != "0", f"{shown}; torch_npu counts {count} devices")
