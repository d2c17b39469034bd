"""Compiles the simulated NPU, once per version of torch and of the sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = sorted((HERE / "csrc").glob("*.cpp"))
NAME = "simulated_npu"
FLAGS = ["-O1", "-g0", "-std=c++20"]
CACHE = "SIMULATED_NPU_CACHE"


def key() -> str:
    """What a build depends on: sources, flags, torch, Python and the processor."""
    digest = hashlib.sha256()
    for path in sorted((HERE / "csrc").iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(" ".join(FLAGS).encode())
    tag = f"{sys.implementation.cache_tag}-{platform.machine()}"
    return f"torch-{version('torch')}-{tag}-{digest.hexdigest()[:12]}"


def library() -> Path:
    """Where the library of these sources is, or will be."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "roll-core" / NAME
    return Path(os.environ.get(CACHE, default)) / key() / f"{NAME}.so"


def build() -> Path:
    """The library, compiled in a process of its own where it is not there yet.

    Loading it changes torch for the whole process, so this one never does.

    Raises:
        RuntimeError: it cannot be compiled, for want of a compiler for instance; holds the compiler's output.
    """
    target = library()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            # ninja may be installed beside this interpreter only.
            path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
            environment = {**os.environ, "PATH": path, "MAX_JOBS": os.environ.get("MAX_JOBS", "2")}
            environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            command = [sys.executable, __file__, str(target.parent)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode != 0 or not target.exists():
                raise RuntimeError(f"the simulated NPU cannot be compiled\n{done.stdout[-8000:]}{done.stderr[-4000:]}")
    return target


def compile_into(folder: Path) -> None:
    """Compile and load, in this process."""
    from torch.utils import cpp_extension

    work = folder / "work"
    work.mkdir(exist_ok=True)
    cpp_extension.load(
        NAME, [str(path) for path in SOURCES], extra_cflags=FLAGS, build_directory=str(work), verbose=True
    )
    (work / f"{NAME}.so").replace(folder / f"{NAME}.so")


if __name__ == "__main__":
    compile_into(Path(sys.argv[1]))
