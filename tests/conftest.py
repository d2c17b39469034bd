"""Fixtures for tests of several folders."""

from __future__ import annotations

import itertools
import textwrap
from importlib import metadata
from pathlib import Path

import pytest

from roll_core.plugins import Registry, load_plugins

_SERIAL = itertools.count()


class PluginSite:
    """A folder on the path in which plugins are installed as pip would: a module, and the metadata beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, source: str, name: str = "roll_demo", dist: str = "", version: str = "1.0", attribute: str = ""
    ) -> str:
        """Write a plugin and return its module's name, which is new each time, so that no import is remembered.

        The source may say PREAMBLE for what every plugin begins with, and MODULE for the module's own name.
        """
        module = f"{name}_{next(_SERIAL)}"
        preamble = "from roll_core import Availability, Backend, hookimpl\nROLL_PLUGIN_API = 1\n"
        text = textwrap.dedent(source).replace("PREAMBLE", preamble).replace("MODULE", module)
        (self.folder / f"{module}.py").write_text(text)
        dist = dist or name.replace("_", "-")
        info = self.folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        target = f"{module}:{attribute}" if attribute else module
        (info / "entry_points.txt").write_text(f"[roll_core]\n{name} = {target}\n")
        return module

    def load(self, **environ: str) -> Registry:
        """Load core and the plugins of this folder, whatever else is installed."""
        points = [
            point
            for dist in metadata.distributions(path=[str(self.folder)])
            for point in dist.entry_points.select(group="roll_core")
        ]
        return load_plugins(environ, points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PluginSite:
    """An empty folder for plugins, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return PluginSite(folder)
