"""Environment variables that workers on GPUs get unless the user says otherwise, each with its reason.

Sources: torch's notes on CUDA semantics, NVIDIA's list of NCCL variables, vLLM's `envs.py`.
"""

from __future__ import annotations

GENERATING_ROLES = frozenset({"actor_infer", "student_infer"})
REWARD_PREFIX = "reward"
"""Rewards that judge by a model hold an engine; to others the difference is nothing."""
ENGINES_WITH_A_POOL = frozenset({"vllm", "sglang"})
"""Engines that sleep by giving up a memory pool of their own, which excludes expandable segments."""

HOST = {
    # Several workers share the host's cores; a pool of threads in each makes every one of them slower.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # By default every worker compiles with as many processes as the host has cores.
    "TORCHINDUCTOR_COMPILE_THREADS": "2",
}
CUDA = HOST | {
    # vLLM sets this in its own workers, and the ranks of a group that spans trainer and engine must agree on it.
    "NCCL_CUMEM_ENABLE": "0",
    # Multicast buffers of NVLink switches are taken from device memory per group, and an RL run has many groups.
    "NCCL_NVLS_ENABLE": "0",
}
CUDA_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
ROCM_ALLOCATOR = "PYTORCH_HIP_ALLOC_CONF"
COMMON_ALLOCATOR = "PYTORCH_ALLOC_CONF"
"""Where it is set, torch reads it before the two above."""
SEGMENTS = "expandable_segments:True"
"""Less fragmentation under micro-batches of varying lengths."""

CUDA_VLLM = {
    # Symmetric memory for sums over ranks is mapped apart from the pool that sleep frees; ROLL switches it off too.
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
ROCM_VLLM = {
    # The AITER kernels shuffle the weights of experts after loading, which new weights do not go through.
    "VLLM_ROCM_USE_AITER": "0",
    "VLLM_ROCM_USE_AITER_MOE": "0",
}


def holds_engine(role: str) -> bool:
    """Whether a role's workers hold an engine."""
    return role in GENERATING_ROLES or role.startswith(REWARD_PREFIX)


def role_environment(role: str, everywhere: dict[str, str], allocator: str) -> dict[str, str]:
    """What a role's workers get: those that train or score have expandable segments, engines have not."""
    return everywhere | {allocator: "" if holds_engine(role) else SEGMENTS}


def engine_environment(engine: str, allocator: str, vllm: dict[str, str]) -> dict[str, str]:
    """What every process of an engine gets, whatever started it."""
    of_pool = {allocator: ""} if engine in ENGINES_WITH_A_POOL else {}
    return of_pool | (vllm if engine == "vllm" else {})


def wants_segments(value: str) -> bool:
    """Whether an allocator setting asks for expandable segments."""
    parts = [part.strip().lower() for part in value.split(",")]
    return any(part.replace(" ", "") == "expandable_segments:true" for part in parts)
