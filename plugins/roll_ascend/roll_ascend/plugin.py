"""What roll_ascend offers to roll-core. It imports the standard library and roll_core only."""

from roll_ascend.probe import probe_npu
from roll_core import Backend, hookimpl

ROLL_PLUGIN_API = 1


@hookimpl
def roll_platforms() -> list[Backend]:
    """Ascend NPUs, through torch_npu."""
    return [
        Backend("npu", "roll_ascend.platform:NpuPlatform", "Ascend NPU (torch_npu)", probe=probe_npu, extra="device")
    ]
