"""Well-known names, and the package that brings each: the only place where core knows vendors by name.

The table serves messages: what to install for a name that nobody offers, and which platform a device file, a
resource of the cluster or an environment variable belongs to. Nothing is chosen by it, and a platform that is
not in it works like any other.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roll_core.backend import Kind

NOSET_PREFIX = "RAY_EXPERIMENTAL_NOSET_"


@dataclass(frozen=True)
class WellKnown:
    """A name people ask for. `package` brings it; empty where none is known, and then `remark` says more."""

    name: str
    package: str = ""
    remark: str = ""
    spellings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlatformClues:
    """By what a platform shows itself: device files, its Ray resource, and its environment variables.

    A variable ending in `_` stands for all that begin with it.
    """

    name: str
    ray_resource: str
    device_files: tuple[str, ...]
    variables: tuple[str, ...]


OFFLOAD_COLLECTIVE_KEY = "offload_nccl"
"""A key of published configs that is read by every platform and does nothing."""

NO_GRAPH_KEY = "disable_cuda_graph"
"""An option by which an engine, on every platform, runs eagerly."""

SAME_VARIABLES: tuple[Mapping[str, str], ...] = (
    {"npu": "ASCEND_LAUNCH_BLOCKING", "cuda": "CUDA_LAUNCH_BLOCKING"},
    {"npu": "HCCL_SOCKET_IFNAME", "cuda": "NCCL_SOCKET_IFNAME", "rocm": "NCCL_SOCKET_IFNAME"},
)
"""Environment variables that mean the same on several platforms and take the same values."""

PLATFORM_FOLDERS: Mapping[str, tuple[str, ...]] = {
    "npu": ("/ascend/", "/davinci/"),
    "cuda": ("/cuda/", "/cuda-", "/nvidia/"),
    "rocm": ("/rocm/", "/rocm-"),
}
"""Parts of paths, in lower case, that show the software of a platform."""

NO_PACKAGE = "is left to plugins, and no package that brings it is known"

WELL_KNOWN: dict[Kind, tuple[WellKnown, ...]] = {
    "platform": (
        WellKnown("npu", "roll-ascend", spellings=("ascend", "huawei", "torch_npu", "cann", "910b")),
        WellKnown("cuda", "roll-cuda", spellings=("nvidia", "gpu")),
        WellKnown("rocm", "roll-cuda", spellings=("amd", "hip", "radeon")),
    ),
    "train": (
        WellKnown("megatron_train", remark=NO_PACKAGE, spellings=("megatron",)),
        WellKnown("megatron_infer", remark=NO_PACKAGE),
        WellKnown("deepspeed_train", remark=NO_PACKAGE, spellings=("deepspeed",)),
        WellKnown("deepspeed_infer", remark=NO_PACKAGE),
        WellKnown("diffusion_deepspeed_train", remark=NO_PACKAGE),
        WellKnown("veomni_train", remark=NO_PACKAGE),
        WellKnown("veomni_infer", remark=NO_PACKAGE),
    ),
    "infer": (),
    "transport": (WellKnown("TransferQueue", "roll-transferqueue", spellings=("transfer_queue", "tq")),),
    "patch": (),
}

PLATFORM_CLUES: tuple[PlatformClues, ...] = (
    PlatformClues(
        "npu",
        "NPU",
        # Not davinci_manager, which containers without a device may have.
        ("/dev/davinci[0-9]*",),
        (
            "ACL_",
            "ACLNN_",
            "ASCEND_",
            "ASDOPS_",
            "ATB_",
            "COMBINED_ENABLE",
            "CPU_AFFINITY_CONF",
            "HCCL_",
            "MULTI_STREAM_MEMORY_REUSE",
            "NPU_",
            "PYTORCH_NPU_",
            "TASK_QUEUE_ENABLE",
            "VLLM_ASCEND_",
            "VLLM_ENABLE_MC2",
        ),
    ),
    PlatformClues(
        "cuda",
        "GPU",
        ("/dev/nvidia[0-9]*",),
        # The two that rocm reads too are listed under both.
        ("CUBLAS_", "CUDA_", "CUDNN_", "NCCL_", "NVIDIA_", "NVTE_", "PYTORCH_CUDA_", "TORCH_NCCL_"),
    ),
    PlatformClues(
        "rocm",
        "GPU",
        ("/dev/kfd",),
        (
            "AMD_",
            "HIP_",
            "HSA_",
            "MIOPEN_",
            "NCCL_",
            "PYTORCH_CUDA_",
            "PYTORCH_HIP_",
            "RCCL_",
            "ROCR_",
            "TORCH_NCCL_",
            "VLLM_ROCM_",
        ),
    ),
)


def well_known(kind: Kind, name: str) -> WellKnown | None:
    """The entry for a name or one of its other spellings, upper or lower case."""
    asked = name.lower()
    for entry in WELL_KNOWN[kind]:
        if asked == entry.name.lower() or asked in entry.spellings:
            return entry
    return None


def nearly_known(kind: Kind, name: str) -> WellKnown | None:
    """The entry whose name or spelling is nearest to a misspelt one, or None where none is near."""
    spelt = {text.lower(): entry for entry in WELL_KNOWN[kind] for text in (entry.name, *entry.spellings)}
    near = difflib.get_close_matches(name.lower(), spelt, n=1)
    return spelt[near[0]] if near else None


def package_of(kind: Kind, name: str) -> str:
    """The distribution that brings a name; empty where none is known."""
    entry = well_known(kind, name)
    return entry.package if entry else ""


def same_variable(name: str, platform: str) -> str | None:
    """What a platform calls another one's variable; None where it has no such variable."""
    return next((table.get(platform) for table in SAME_VARIABLES if name in table.values()), None)


def platforms_of_paths(text: str) -> tuple[str, ...]:
    """The platforms whose software a list of paths, such as a library path, leads to."""
    lowered = f"{text.lower()}/"
    return tuple(name for name, parts in PLATFORM_FOLDERS.items() if any(part in lowered for part in parts))


def platforms_of_variable(name: str) -> tuple[str, ...]:
    """The platforms an environment variable belongs to; empty for a variable that is not about a device."""
    plain = name.removeprefix(NOSET_PREFIX)
    return tuple(
        clues.name
        for clues in PLATFORM_CLUES
        if any(plain.startswith(known) if known.endswith("_") else plain == known for known in clues.variables)
    )


def device_files() -> list[str]:
    """The device files of well-known accelerators that this machine has."""
    patterns = [pattern for clues in PLATFORM_CLUES for pattern in clues.device_files]
    return sorted(str(path) for pattern in patterns for path in Path("/").glob(pattern.removeprefix("/")))


def device_evidence(files: list[str], ray_resources: Mapping[str, float]) -> dict[str, list[str]]:
    """What shows each well-known platform: its device files among `files`, its resource in the cluster.

    Two platforms may share a resource; where one of them has device files here, the resource is taken for its own.
    """
    found: dict[str, list[str]] = {}
    for clues in PLATFORM_CLUES:
        shown = [path for path in files if any(fnmatch.fnmatch(path, pattern) for pattern in clues.device_files)]
        if shown:
            found[clues.name] = [shown[0] if len(shown) == 1 else f"{shown[0]} and {len(shown) - 1} more"]
    for resource in sorted({clues.ray_resource for clues in PLATFORM_CLUES}):
        count = ray_resources.get(resource, 0)
        sharing = [clues.name for clues in PLATFORM_CLUES if clues.ray_resource == resource]
        here = [name for name in sharing if name in found]
        if count > 0:
            for name in here or sharing:
                found.setdefault(name, []).append(f"{count:g} {resource} in the Ray cluster")
    return found
