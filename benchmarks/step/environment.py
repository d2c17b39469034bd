"""TRL's own environment, made by the benchmark: another package's pins never touch ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from machine import CACHE, ROOT

TRL_VERSION = "1.16.0"
"""The latest release when this was written; it installs beside the versions of constraints.txt."""


def trl_python(trl_version: str = TRL_VERSION) -> Path:
    """The interpreter of an environment that holds TRL and the versions of torch and transformers that we run with.

    Made where it is missing, which takes a minute and 1.5 GB.
    """
    folder = CACHE / f"trl-{trl_version}"
    python, finished = folder / "bin" / "python", folder / ".installed"
    if finished.exists():
        return python
    print(f"making an environment with TRL {trl_version} in {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), f"trl=={trl_version}"], check=True)
    finished.touch()
    return python
