"""A fresh environment with wheels of this repository and of plugins written for a test, and nothing else of it.

Everything that the wheels need is lent by the environment the tests run in, without what it has of roll: no network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PREAMBLE = "from roll_core import Availability, Backend, hookimpl\nROLL_PLUGIN_API = 1\n"


def build_wheel(project: Path, folder: Path) -> Path:
    """The wheel of a project of this repository, built from a copy: builds leave files beside their sources."""
    copy = folder / f"source-{project.name}"
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "build", "dist", "tests", "node_modules")
    for name in ("pyproject.toml", "README.md", "roll_core", project.name):
        source = project / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignored)
        elif source.is_file():
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name)
    wheels = folder / f"wheels-{project.name}"
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(copy)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    [wheel] = wheels.glob("*.whl")
    return wheel


def write_wheel(folder: Path, dist: str, source: str, *, point: str, version: str = "1.0") -> Path:
    """A wheel with one module, whose source may say PREAMBLE, offered as the plugin `point`."""
    module = dist.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": textwrap.dedent(source).replace("PREAMBLE", PREAMBLE),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\nRequires-Dist: roll-core\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[roll_core]\n{point} = {module}\n",
    }
    records = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


class Environment:
    """A virtual environment of its own; `python` and `roll` are its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)], check=True)
        self.python = self.folder / "bin" / "python"
        lent = folder / "lent"
        lent.mkdir()
        for entry in lendable():
            if not (lent / entry.name).exists():
                (lent / entry.name).symlink_to(entry)
        [site] = self.folder.glob("lib/python*/site-packages")
        (site / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")

    def install(self, *wheels: Path) -> None:
        """Install wheels as pip does, without what they depend on."""
        self._pip("install", "--no-deps", "--no-index", *map(str, wheels))

    def uninstall(self, *dists: str) -> None:
        self._pip("uninstall", "--yes", *dists)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in an empty folder, without variables that change it."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("ROLL_", "PYTHON"))}
        program, *arguments = command
        where = self.folder.parent / "elsewhere"
        where.mkdir(exist_ok=True)
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments], cwd=where, env=environ, capture_output=True, text=True
        )

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        subprocess.run([*command, "--disable-pip-version-check", "--quiet"], check=True, capture_output=True, text=True)


def lendable() -> list[Path]:
    """What is installed where the tests run, without anything of roll: neither code, nor metadata, nor links to it."""
    folders = [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    entries = [entry for folder in folders if folder.is_dir() for entry in sorted(folder.iterdir())]
    return [
        entry
        for entry in entries
        if not entry.name.lower().startswith(("roll_", "roll-", "__editable__")) and entry.suffix != ".pth"
    ]


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
