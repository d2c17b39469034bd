"""Errors as they are printed, and what is said about them."""

import pytest
from roll_cuda.cuda import CudaPlatform
from roll_cuda.rocm import RocmPlatform

from roll_core.platforms import Platform

CUDA, ROCM = CudaPlatform(), RocmPlatform()


@pytest.mark.parametrize(
    ("platform", "text", "remedy"),
    [
        (CUDA, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory_utilization"),
        (ROCM, "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "gpu_memory_utilization"),
        (CUDA, "AssertionError: Expandable segments are not compatible with memory pool.", "PYTORCH_ALLOC_CONF"),
        (CUDA, "RuntimeError: CUDA error: invalid device ordinal", "CUDA_VISIBLE_DEVICES"),
        (CUDA, "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda", "sdpa"),
        (CUDA, "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4", "first rank"),
        (CUDA, "ncclSystemError: System call (e.g. socket, malloc) failed", "--shm-size"),
        (ROCM, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000", "device_mapping"),
        (CUDA, "RuntimeError: Cannot re-initialize CUDA in forked subprocess.", "spawn"),
        (CUDA, "AssertionError: Torch not compiled with CUDA enabled", "roll doctor"),
        (CUDA, "CUDA error: no kernel image is available for execution on the device", "compute capability"),
        (CUDA, "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)", "driver"),
        (CUDA, "Error 802: system not yet initialized", "fabricmanager"),
        (ROCM, "hipErrorNoBinaryForGpu: Unable to find code object", "gfx"),
        (ROCM, "RuntimeError: No HIP GPUs are available", "/dev/kfd"),
    ],
)
def test_an_error_is_known_by_exactly_one_cause(platform: Platform, text: str, remedy: str) -> None:
    answers = [error for error in platform.known_errors() if error.explains(text)]
    assert len(answers) == 1 and remedy in answers[0].remedy


@pytest.mark.parametrize("text", ["KeyError: 'prompt'", "CUDA graphs were captured", "ProcessGroupNCCL initialized"])
@pytest.mark.parametrize("platform", [CUDA, ROCM])
def test_other_texts_are_left_alone(platform: Platform, text: str) -> None:
    assert not any(error.explains(text) for error in platform.known_errors())
