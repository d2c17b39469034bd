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


@hookimpl
def roll_model_patches() -> list[Backend]:
    """What large models need under fsdp2_train on NPUs. Plain torch, hence for every platform."""
    folder = "roll_ascend.patches"
    return [
        Backend("expert_patch", f"{folder}.moe_expert_patch:MoeExpertPatch", "all ranks run all experts in one order"),
        Backend("tiled_mlp", f"{folder}.tiled_mlp:TiledMlp", "feed-forward layers take their tokens in slices"),
    ]
