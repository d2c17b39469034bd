"""The platform `cuda`: what differs on NVIDIA GPUs, by fact and by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from roll_core.platforms import Ability, EngineDefaults, Platform

if TYPE_CHECKING:
    from roll_core.migration import Migration

EVERY_WORKER = {
    # Several workers share the host's cores; a pool of threads in each makes every one of them slower.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # vLLM sets this in its own workers, and the ranks of a group that spans trainer and engine must agree on it.
    "NCCL_CUMEM_ENABLE": "0",
}

# Less fragmentation under micro-batches of varying lengths.
TRAINING = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

# An engine that sleeps manages its own memory pool, which excludes expandable segments.
GENERATION = {"PYTORCH_CUDA_ALLOC_CONF": ""}

GENERATING_ROLES = frozenset({"actor_infer"})


class CudaPlatform(Platform):
    """NVIDIA GPUs."""

    name: ClassVar[str] = "cuda"
    device_type: ClassVar[str] = "cuda"
    ray_resource: ClassVar[str] = "GPU"
    visible_devices_env: ClassVar[str] = "CUDA_VISIBLE_DEVICES"
    collective_backend: ClassVar[str] = "nccl"
    # sdpa comes first because it needs no further package; flash_attention_2 needs flash_attn.
    attention: ClassVar[tuple[str, ...]] = ("sdpa", "flash_attention_2", "flex_attention", "eager")

    def abilities(self) -> frozenset[Ability]:
        """Every GPU that torch still supports computes in both half precisions, older ones slowly in bfloat16."""
        return frozenset({Ability.BF16, Ability.FP16, Ability.DEVICE_IPC, Ability.SLEEP})

    def migration(self) -> Migration:
        """How configs of other platforms become configs of this one."""
        from roll_cuda.migration import MIGRATION

        return MIGRATION

    def worker_env(self, role: str) -> dict[str, str]:
        """Training and scoring roles differ from those that hold an engine."""
        return EVERY_WORKER | (GENERATION if role in GENERATING_ROLES else TRAINING)

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine has these wherever it runs: as a role of its own, or as a judge inside a reward."""
        return EngineDefaults(env=dict(GENERATION))

    def device_uid(self, index: int = 0) -> str:
        """The device's UUID: unlike ids it does not depend on which devices a process may see."""
        return str(self.torch.get_device_properties(index).uuid)
