"""The plugin module: light, and its targets are there."""

import subprocess
import sys
from pathlib import Path

from roll_cuda import plugin

from roll_core import PLUGIN_API
from roll_core.platforms import Platform
from roll_core.plugins import PluginRecord
from roll_core.resolve import Resolved

ROOT = Path(__file__).parents[1]


def test_it_offers_two_platforms_and_each_class_has_its_name() -> None:
    assert plugin.ROLL_PLUGIN_API == PLUGIN_API
    backends = plugin.roll_platforms()
    assert [backend.name for backend in backends] == ["cuda", "rocm"]
    record = PluginRecord("roll_cuda", "roll-cuda", "0", "loaded", "", {"platform": tuple(backends)})
    for backend in backends:
        loaded = Resolved("platform", record, backend).load()
        assert issubclass(loaded, Platform) and loaded.name == backend.name


def test_importing_the_plugin_and_its_platform_brings_in_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import roll_cuda.plugin, roll_cuda.cuda, roll_cuda.rocm\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'roll_core', 'roll_cuda', 'pluggy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
