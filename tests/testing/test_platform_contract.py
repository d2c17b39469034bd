"""Plain processors keep the contract of platforms."""

from roll_core.platforms.cpu import CpuPlatform
from roll_core.testing.platform_contract import PlatformContract
from roll_core.testing.plugin_contract import PluginContract


class TestCore(PluginContract):
    plugin = "roll_core"


class TestCpu(PlatformContract):
    platform_class = CpuPlatform
