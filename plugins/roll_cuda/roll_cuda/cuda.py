"""The platform `cuda`: what differs on NVIDIA GPUs, by fact and by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from roll_core.platforms import Ability, EngineDefaults, Platform
from roll_cuda import env

if TYPE_CHECKING:
    from roll_core.errors import Problem
    from roll_core.findings import Finding, KnownError
    from roll_core.migration import Migration


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

    def problems(self, config: Any) -> list[Problem]:
        """What in a config no GPU can do as written."""
        from roll_cuda.problems import config_problems

        return list(config_problems(config, [self.visible_devices_env], env.CUDA_ALLOCATOR))

    def findings(self) -> list[Finding]:
        """What of this machine's software and settings is right or wrong; imports nothing of it."""
        from roll_cuda.checks import cuda_findings
        from roll_cuda.machine import this_machine

        return cuda_findings(this_machine())

    def known_errors(self) -> list[KnownError]:
        """Errors of CUDA, NCCL and what is built on them that users have met."""
        from roll_cuda import known_errors

        return [*known_errors.CUDA, *known_errors.COMMON]

    def migration(self) -> Migration:
        """How configs of other platforms become configs of this one."""
        from roll_cuda.migration import MIGRATION

        return MIGRATION

    def worker_env(self, role: str) -> dict[str, str]:
        """Training and scoring roles differ from those that hold an engine."""
        return env.role_environment(role, env.CUDA, env.CUDA_ALLOCATOR)

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine has these wherever it runs: as a role of its own, or as a judge inside a reward."""
        return EngineDefaults(env=env.engine_environment(engine, env.CUDA_ALLOCATOR, env.CUDA_VLLM))

    def device_uid(self, index: int = 0) -> str:
        """The UUID of a device or of a part of one (MIG): unlike ids, it is the same in every process that sees it."""
        return str(self.torch.get_device_properties(index).uuid)

    def empty_cache(self) -> None:
        """Give cached device memory back, cuBLAS's workspaces included: torch keeps those per thread and stream."""
        import torch

        if self.torch.is_initialized():
            torch._C._cuda_clearCublasWorkspaces()
        self.torch.empty_cache()
