"""The platform `rocm`: what differs on AMD GPUs, by fact and by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from roll_core.platforms import Ability, EngineDefaults, Platform
from roll_cuda import env

if TYPE_CHECKING:
    from roll_core.errors import Problem
    from roll_core.findings import Finding, KnownError
    from roll_core.migration import Migration


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

    def problems(self, config: Any) -> list[Problem]:
        """What in a config no GPU can do as written."""
        from roll_cuda.problems import config_problems

        lists = [self.visible_devices_env, *self.visible_devices_aliases]
        return list(config_problems(config, lists, env.ROCM_ALLOCATOR))

    def findings(self) -> list[Finding]:
        """What of this machine's software and settings is right or wrong; imports nothing of it."""
        from roll_cuda.checks import rocm_findings
        from roll_cuda.machine import this_machine

        return rocm_findings(this_machine())

    def known_errors(self) -> list[KnownError]:
        """Errors of ROCm, RCCL and what is built on them that users have met."""
        from roll_cuda import known_errors

        return [*known_errors.ROCM, *known_errors.COMMON]

    def migration(self) -> Migration:
        """How configs of other platforms become configs of this one."""
        from roll_cuda.migration import MIGRATION

        return MIGRATION

    def worker_env(self, role: str) -> dict[str, str]:
        """Training and scoring roles differ from those that hold an engine."""
        return env.role_environment(role, env.HOST, env.ROCM_ALLOCATOR)

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine has these wherever it runs: as a role of its own, or as a judge inside a reward."""
        return EngineDefaults(env=env.engine_environment(engine, env.ROCM_ALLOCATOR, env.ROCM_VLLM))
