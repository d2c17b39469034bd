"""The plugin module: light, and its target is there."""

import subprocess
import sys
from pathlib import Path

from roll_ascend import plugin

from roll_core import PLUGIN_API
from roll_core.platforms import Platform
from roll_core.plugins import PluginRecord
from roll_core.resolve import Resolved

ROOT = Path(__file__).parents[1]


def test_it_offers_npu_and_the_class_is_a_platform_of_that_name() -> None:
    assert plugin.ROLL_PLUGIN_API == PLUGIN_API
    (backend,) = plugin.roll_platforms()
    record = PluginRecord("roll_ascend", "roll-ascend", "0", "loaded", "", {"platform": (backend,)})
    loaded = Resolved("platform", record, backend).load()
    assert issubclass(loaded, Platform) and loaded.name == backend.name == "npu"


def test_importing_the_plugin_and_its_platform_brings_in_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import roll_ascend.plugin, roll_ascend.platform\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'roll_core', 'roll_ascend', 'pluggy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_looking_at_a_machine_and_a_config_brings_in_nothing_heavy() -> None:
    code = (
        "import sys; from roll_ascend.platform import NpuPlatform; from roll_core.config.compose import load_config\n"
        "config = load_config('ascend_examples', 'qwen3_30b_rlvr_fsdp2'); platform = NpuPlatform()\n"
        "assert platform.findings() and platform.known_errors() and platform.problems(config) == []\n"
        "heavy = {'torch', 'torch_npu', 'transformers', 'vllm', 'vllm_ascend', 'ray', 'triton'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parents[1], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
