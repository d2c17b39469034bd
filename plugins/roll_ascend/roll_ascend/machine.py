"""What the checks look at: files, environment, installed packages, addresses; tests plant another machine for it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

CANN_FOLDERS = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/cann")
PCI_VENDOR = "0x19e5"
CHIPS = {"0xd802": "A2", "0xd803": "A3"}
"""PCI device ids of Ascend 910B and 910_93, as Ascend's device plugin for Kubernetes tells them apart."""


@dataclass(frozen=True)
class Machine:
    """A machine, or what a test wants to be taken for one.

    `root` stands for `/`, `packages` for the folders in which installed packages are looked for (None: those that
    Python imports from), `addresses` for the IP addresses of each network interface.
    """

    root: Path
    environ: Mapping[str, str]
    packages: tuple[str, ...] | None = None
    python: str = "3.12"
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"lo": ("127.0.0.1",)})

    @cached_property
    def versions(self) -> dict[str, str]:
        """Version of each installed package by its normalised name, read from metadata."""
        found: dict[str, str] = {}
        places = metadata.distributions(path=list(self.packages)) if self.packages else metadata.distributions()
        for dist in places:
            # An interrupted installation leaves folders of metadata with nothing in them.
            if dist.read_text("METADATA") or dist.read_text("PKG-INFO"):
                found.setdefault(re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower(), dist.version)
        return found

    def package_folder(self, name: str) -> Path | None:
        """Where a package lies, found without importing it, also one that is installed from its sources."""
        spec = PathFinder.find_spec(name, self.packages) if self.packages else find_spec(name)
        places = spec.submodule_search_locations if spec else None
        return Path(next(iter(places))) if places else None

    @property
    def devices(self) -> list[str]:
        """Device files of NPUs, such as davinci0."""
        return sorted(path.name for path in (self.root / "dev").glob("davinci[0-9]*"))

    @property
    def chip(self) -> str:
        """A2 or A3, as the PCI bus tells; empty where it tells nothing."""
        for folder in sorted((self.root / "sys/bus/pci/devices").glob("*")):
            if _text(folder / "vendor") == PCI_VENDOR and _text(folder / "device") in CHIPS:
                return CHIPS[_text(folder / "device")]
        return ""

    @cached_property
    def cann_folder(self) -> Path | None:
        """CANN's folder: the one that ASCEND_HOME_PATH names, else where it is usually installed."""
        named = self.environ.get("ASCEND_HOME_PATH", "")
        places = [self.root / place for place in (named.lstrip("/"), *CANN_FOLDERS) if place]
        return next((place for place in places if place.is_dir()), None)

    @cached_property
    def cann_version(self) -> str:
        """CANN's version as its own record says; empty where there is none."""
        if self.cann_folder is None:
            return ""
        records = [*self.cann_folder.glob("*-linux/ascend_toolkit_install.info"), self.cann_folder / "version.cfg"]
        for record in records:
            match = re.search(r"(?:^version=|\[)(\d+\.\d+[\w.]*)", _text(record), re.MULTILINE)
            if match:
                return match[1]
        return ""

    @property
    def driver_version(self) -> str:
        """Version of the host's driver, as mounted here; empty where it is not."""
        match = re.search(
            r"^Version=(\S+)", _text(self.root / "usr/local/Ascend/driver/version.info"), re.MULTILINE | re.IGNORECASE
        )
        return match[1] if match else ""

    @cached_property
    def listening(self) -> frozenset[int]:
        """Ports of this host on which something listens."""
        found = set()
        for table in ("proc/net/tcp", "proc/net/tcp6"):
            for line in _text(self.root / table).splitlines()[1:]:
                words = line.split()
                if len(words) > 3 and words[3] == "0A":
                    found.add(int(words[1].rpartition(":")[2], 16))
        return frozenset(found)

    def text(self, path: str) -> str:
        """A file's text below the root; empty where there is none."""
        return _text(self.root / path)


def this_machine() -> Machine:
    """The machine this process runs on."""
    import psutil

    kinds = (socket.AF_INET, socket.AF_INET6)
    return Machine(
        root=Path("/"),
        environ=dict(os.environ),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        addresses={
            name: tuple(one.address.partition("%")[0] for one in found if one.family in kinds)
            for name, found in psutil.net_if_addrs().items()
        },
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
