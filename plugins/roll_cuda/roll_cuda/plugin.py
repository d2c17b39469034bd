"""What roll_cuda offers to roll-core. It imports the standard library and roll_core only."""

from roll_core import Backend, hookimpl
from roll_cuda.probe import probe_cuda, probe_rocm

ROLL_PLUGIN_API = 1


@hookimpl
def roll_platforms() -> list[Backend]:
    """GPUs of two vendors; torch calls both of them cuda, and is built for one."""
    return [
        Backend("cuda", "roll_cuda.cuda:CudaPlatform", "NVIDIA GPU (CUDA)", probe=probe_cuda),
        Backend("rocm", "roll_cuda.rocm:RocmPlatform", "AMD GPU (ROCm)", probe=probe_rocm),
    ]
