"""Plain processors keep the contract of platforms."""

from roll_core.platforms.cpu import CpuPlatform
from roll_core.testing.device_checks import shares_memory
from roll_core.testing.platform_contract import PlatformContract
from roll_core.testing.plugin_contract import PluginContract


class TestCore(PluginContract):
    plugin = "roll_core"


class TestCpu(PlatformContract):
    platform_class = CpuPlatform


def test_memory_that_processes_share_is_seen_to_be_shared() -> None:
    assert shares_memory(CpuPlatform())
