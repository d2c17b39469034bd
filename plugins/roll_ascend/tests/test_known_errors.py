"""Errors that users have met are explained, each by one entry, and other errors are not."""

import pytest
from roll_ascend.known_errors import KNOWN_ERRORS
from roll_ascend.platform import NpuPlatform

from roll_core.findings import KnownError

# What a user sees, and words of the remedy that must be in the answer.
MET = {
    # ROLL's FAQ for Ascend, in its order.
    "dcmi module initialize failed. ret is -8005": "--device for every /dev/davinciN",
    "ModuleNotFoundError: No module named 'vllm_ascend'": "set_env.sh",
    "ImportError: libascendcl.so: cannot open shared object file: No such file or directory": "nnal/atb/set_env.sh",
    "AttributeError: module 'torch' has no attribute 'npu'": "torch-npu's version begins with torch's",
    "RuntimeError: SOC_VERSION ascend910b1 not supported": "Dockerfile.A3",
    "AssertionError: Current device type: A3 does not match the installed version's device type: A2, please check your "
    "installation package.": "Dockerfile.A3",
    "ValueError: FRACTAL_NZ mode is enabled. This may cause model parameter precision issues in the RL scenarios. "
    "Please set VLLM_ASCEND_ENABLE_NZ=0.": "VLLM_ASCEND_ENABLE_NZ=0",
    "The IP address 10.0.0.1 and port 16666 have already been bound": "HCCL_NPU_SOCKET_PORT_RANGE=auto",
    "ImportError: cannot import name 'language' from 'triton' (unknown location)": "triton-ascend==3.2.1",
    "ModuleNotFoundError: No module named 'megatron'": "fsdp2_train",
    "no training strategy named 'megatron_train'": "fsdp2_train",
    "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time": "hccn_tool",
    "[ERROR] HCCL(39,x): ____LINK_ERROR_INFO____": "hccn_tool",
    "RuntimeError: Hccl execute failed": "hccn_tool",
    "1 nodes have joined so far, waiting for 1": "nc -zv MASTER_ADDR 6379",
    "Worker nodes exit immediately": "ray status",
    "error cqe status 12 on RDMA queue pair": "PFC and ECN",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/models/Qwen3-8B/config.json'": "shared file system",
    "RuntimeError: NPU out of memory. Tried to allocate 2.32 GiB (NPU 0; 60.97 GiB total capacity)": "offload_policy",
    "vLLM inference throughput is slow": "`version matrix`",
    # The RLVR guide's own.
    "The first inference request takes minutes": "ACL_OP_COMPILER_CACHE_MODE=enable",
    # Public reports.
    "OSError: libascend_hal.so: cannot open shared object file": "`platform: cpu`",
    "undefined symbol: _ZN3c105ErrorC2E, in torch_npu/lib/libtorch_npu.so": "torch-npu 2.10.0.post4",
    "No module named 'flash_attn'": "attn_implementation: fa2",
    "RuntimeError: exchangeDevice:build/npu.cpp:93 NPU function error: invalid device ID 5, error code is 107001": (
        "counts within"
    ),
    "expected device npu:15, but was npu:0": "Unset it",
    "local rank range [8,12) base 0..7": "num_gpus_per_node",
    "No available node types can fulfill resource request {'GPU': 1.0}": "`platform: npu`",
    "AssertionError: Expandable segments are not compatible with memory pool.": "actor_train.system_envs",
    "ValueError: ACL graph is incompatible with ASCEND_LAUNCH_BLOCKING=1.": "enforce_eager",
    "after wake up the MoE model generates garbage": "sleep_level: 1",
    "TypeError: NonTensorStack has no attribute dtype": "tensor.cpu()",
    "EI0001: Environment variable [HCCL_BUFFSIZE] is invalid": "MB and not bytes",
    "EI0002: The wait execution of the Notify register times out": "HCCL_OP_EXPANSION_MODE",
    "Atlas 310P: triton-ascend is not supported": "Atlas A2 or A3",
    "docker: invalid reference format.": "in one word",
    "/bin/sh: 1: source: not found": "SHELL",
}


@pytest.mark.parametrize("text", MET)
def test_what_users_met_is_explained_by_one_entry_with_the_remedy(text: str) -> None:
    explanations = [error for error in NpuPlatform().known_errors() if error.explains(f"Traceback ...\n{text}\n")]
    assert [error.cause for error in explanations] == [explanations[0].cause]
    assert MET[text] in explanations[0].remedy


def test_every_entry_explains_something_that_was_met() -> None:
    assert [error.cause for error in KNOWN_ERRORS if not any(error.explains(text) for text in MET)] == []


@pytest.mark.parametrize("error", KNOWN_ERRORS, ids=lambda error: error.patterns[0])
def test_every_entry_is_whole(error: KnownError) -> None:
    patterns, cause, remedy = error.patterns, error.cause, error.remedy
    assert patterns and cause.endswith(".") and remedy and cause != remedy


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'actor_train'",
        "ValueError: max_new_tokens must be at least 1",
        "ModuleNotFoundError: No module named 'swanlab'",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for RLVRConfig",
        "torch.OutOfMemoryError: tried to allocate 2 GiB",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.jsonl'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)",
    ],
)
def test_other_errors_are_not_claimed(text: str) -> None:
    assert [error.cause for error in KNOWN_ERRORS if error.explains(text)] == []
