"""Wheels from the package registry, kept in .cache/registry and never installed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "registry"


@dataclass(frozen=True)
class Release:
    """A version of a package, and the Python and platform its wheel is for."""

    package: str
    version: str
    python: str
    platform: str

    def __str__(self) -> str:
        return f"{self.package}-{self.version}"


RELEASES = (
    Release("torch-npu", "2.10.0.post4", "3.12", "manylinux_2_28_x86_64"),
    Release("torch-npu", "2.13.0", "3.11", "manylinux_2_28_x86_64"),
    Release("vllm-ascend", "0.23.0", "3.12", "manylinux_2_34_x86_64"),
    Release("vllm-ascend", "0.23.0rc1", "3.12", "manylinux_2_34_x86_64"),
)
"""The supported versions: those of ROLL's guide, and the latest."""


def wheel_of(release: Release) -> Path:
    """The release's wheel, downloaded where it is not there yet."""
    stem = f"{release.package.replace('-', '_')}-{release.version}-*.whl"
    found = list(CACHE.glob(stem))
    if not found:
        CACHE.mkdir(parents=True, exist_ok=True)
        # Without --only-binary, pip installs what a source package needs to be built, a CUDA torch among it.
        options = ["--no-deps", "--only-binary=:all:", "--python-version", release.python]
        options += ["--platform", release.platform, "--disable-pip-version-check", "--quiet", "-d", str(CACHE)]
        command = [sys.executable, "-m", "pip", "download", *options, f"{release.package}=={release.version}"]
        subprocess.run(command, check=True)
        found = list(CACHE.glob(stem))
    [wheel] = found
    return wheel
