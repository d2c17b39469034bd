"""The platform `rocm`: what differs on AMD GPUs, by fact and by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from roll_core.platforms import Ability, EngineDefaults, Platform

if TYPE_CHECKING:
    from roll_core.migration import Migration

EVERY_WORKER = {
    # Several workers share the host's cores; a pool of threads in each makes every one of them slower.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

# Less fragmentation under micro-batches of varying lengths.
TRAINING = {"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"}

# An engine that sleeps manages its own memory pool, which excludes expandable segments.
GENERATION = {"PYTORCH_HIP_ALLOC_CONF": ""}

GENERATING_ROLES = frozenset({"actor_infer"})


class RocmPlatform(Platform):
    """AMD GPUs. torch built for them calls the device cuda, and its collective backend, RCCL, nccl."""

    name: ClassVar[str] = "rocm"
    device_type: ClassVar[str] = "cuda"
    ray_resource: ClassVar[str] = "GPU"
    visible_devices_env: ClassVar[str] = "HIP_VISIBLE_DEVICES"
    # The runtime reads both variables. ROCR_VISIBLE_DEVICES is not among them: it comes below, and ids in the others
    # count within its list.
    visible_devices_aliases: ClassVar[tuple[str, ...]] = ("CUDA_VISIBLE_DEVICES",)
    collective_backend: ClassVar[str] = "nccl"
    attention: ClassVar[tuple[str, ...]] = ("sdpa", "flash_attention_2", "eager")

    def abilities(self) -> frozenset[Ability]:
        """Device memory shared between processes is not claimed: nothing here has shown that it works."""
        return frozenset({Ability.BF16, Ability.FP16, Ability.SLEEP})

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
