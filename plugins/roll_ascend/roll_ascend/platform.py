"""The platform `npu`: what differs on Ascend NPUs, by fact and by default."""

from __future__ import annotations

import importlib
from typing import ClassVar

from roll_core.platforms import Ability, EngineDefaults, Platform

EVERY_WORKER = {
    # Roles that share a card each open a port on it; with the fixed default port, 16666, the second one fails.
    "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
    # Seconds until the peers of a group must have connected, and until a collective must have ended. The default of
    # 120 is shorter than the loading of a large model, during which the other ranks wait.
    "HCCL_CONNECT_TIMEOUT": "3600",
    "HCCL_EXEC_TIMEOUT": "3600",
    # Several workers share the host's cores; a pool of threads in each makes every one of them slower.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

TRAINING = {
    # Operators are queued in two levels; this is for eager execution only, hence not for engines.
    "TASK_QUEUE_ENABLE": "2",
    # Less fragmentation under micro-batches of varying lengths.
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
}

GENERATION = {
    "TASK_QUEUE_ENABLE": "1",
    # Weights in the NZ layout cannot be written in place, which every update of the weights does.
    "VLLM_ASCEND_ENABLE_NZ": "0",
    # An engine that sleeps manages its own memory pool, which excludes expandable segments.
    "PYTORCH_NPU_ALLOC_CONF": "",
}

GENERATING_ROLES = frozenset({"actor_infer"})


class NpuPlatform(Platform):
    """Ascend NPUs, through torch_npu."""

    name: ClassVar[str] = "npu"
    device_type: ClassVar[str] = "npu"
    ray_resource: ClassVar[str] = "NPU"
    visible_devices_env: ClassVar[str] = "ASCEND_RT_VISIBLE_DEVICES"
    collective_backend: ClassVar[str] = "hccl"
    # transformers brings its own flash attention for NPUs; the package flash_attn is not used and not needed.
    attention: ClassVar[tuple[str, ...]] = ("flash_attention_2", "sdpa", "eager")

    def setup(self) -> None:
        """Import torch_npu, which adds the device to torch."""
        importlib.import_module("torch_npu")

    def abilities(self) -> frozenset[Ability]:
        """Device memory shared between processes is not claimed: nothing here has shown that it works."""
        return frozenset({Ability.BF16, Ability.FP16, Ability.SLEEP})

    def worker_env(self, role: str) -> dict[str, str]:
        """Training and scoring roles differ from those that hold an engine."""
        return EVERY_WORKER | (GENERATION if role in GENERATING_ROLES else TRAINING)

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine has these wherever it runs: as a role of its own, or as a judge inside a reward."""
        return EngineDefaults(env=dict(GENERATION))
