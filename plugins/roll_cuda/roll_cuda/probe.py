"""Whether a GPU can be used on this machine, found out from files and environment, without importing torch."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from roll_core import Availability

DEVICE_FOLDER = Path("/dev")


def probe_cuda() -> Availability:
    """A device file, no variable that hides it, and a torch that is built for it."""
    files = sorted(DEVICE_FOLDER.glob("nvidia[0-9]*"))
    if not files and (DEVICE_FOLDER / "dxg").exists() and Path("/usr/lib/wsl/lib/libcuda.so.1").exists():
        files = [DEVICE_FOLDER / "dxg"]
    return _answer(files, "nvidia[0-9]*", ("CUDA_VISIBLE_DEVICES",), "libtorch_cuda.so", "CUDA")


def probe_rocm() -> Availability:
    """The one device file of all AMD GPUs, no variable that hides them, and a torch that is built for them."""
    files = sorted(DEVICE_FOLDER.glob("kfd"))
    return _answer(files, "kfd", ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "libtorch_hip.so", "ROCm")


def _answer(files: list[Path], pattern: str, variables: tuple[str, ...], library: str, build: str) -> Availability:
    if not files:
        return Availability(False, f"no device file {DEVICE_FOLDER}/{pattern}")
    shown = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    for variable in variables:
        # -1 is the customary way to hide all devices from one run.
        if os.environ.get(variable, "all").strip() in ("", "-1"):
            return Availability(False, f"{shown}, but {variable}='{os.environ[variable]}' hides every device")
    libraries = _torch_libraries()
    if libraries is None:
        return Availability(False, f"{shown}, but torch is not installed")
    if library not in libraries:
        return Availability(False, f"{shown}, but the installed torch is not built for {build}")
    return Availability(True, f"{shown}, and torch is built for {build}")


def _torch_libraries() -> set[str] | None:
    """Names of the files in torch's folder of libraries; None without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return {path.name for path in (Path(spec.origin).parent / "lib").glob("libtorch_*")}
