"""What the checks look at: files, environment, installed packages; tests plant another machine for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """A machine, or what a test wants to be taken for one.

    `root` stands for `/`, `packages` for the folders in which installed packages are looked for (None: those that
    Python imports from).
    """

    root: Path
    environ: Mapping[str, str]
    packages: tuple[str, ...] | None = None

    def package(self, name: str) -> metadata.Distribution | None:
        """An installed package; None where there is none."""
        found = (
            metadata.distributions(name=name)
            if self.packages is None
            else metadata.distributions(name=name, path=list(self.packages))
        )
        # An interrupted installation leaves folders of metadata with nothing in them.
        return next((one for one in found if one.read_text("METADATA")), None)

    @cached_property
    def torch_builds(self) -> dict[str, str]:
        """What the installed torch is built for, such as {"cuda": "12.8"}, as its own `version.py` says."""
        torch = self.package("torch")
        text = _text(Path(str(torch.locate_file("torch/version.py")))) if torch else ""
        return dict(re.findall(r"^(cuda|hip)\b[^=\n]*= *'([^']+)'", text, re.MULTILINE))

    def requirement_of(self, package: str, needed: str) -> str:
        """The version that a package pins another to, such as "2.10.0"; empty where it pins none."""
        found = self.package(package)
        for line in (found.requires if found else None) or ():
            match = re.match(rf"{needed} *\(?== *([\w.+]+)\)? *(?:;(.*))?$", line)
            if match and "extra" not in (match[2] or ""):
                return match[1]
        return ""

    def devices(self, pattern: str) -> list[str]:
        """Names of the device files of a pattern, below /dev."""
        folder = self.root / "dev"
        return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))

    @property
    def interfaces(self) -> list[str]:
        """The host's network interfaces."""
        return sorted(path.name for path in (self.root / "sys/class/net").glob("*"))

    def text(self, path: str) -> str:
        """A file's text below the root; empty where there is none."""
        return _text(self.root / path)


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(Path("/"), dict(os.environ))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
