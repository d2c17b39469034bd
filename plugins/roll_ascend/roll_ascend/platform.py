"""The platform `npu`: what differs on Ascend NPUs, by fact and by default."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from roll_ascend import env
from roll_core.platforms import Ability, EngineDefaults, Platform

if TYPE_CHECKING:
    from roll_core.errors import Problem
    from roll_core.findings import Finding, KnownError
    from roll_core.migration import Migration


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

    def problems(self, config: Any) -> list[Problem]:
        """What in a config no NPU can do."""
        from roll_ascend.problems import config_problems

        return list(config_problems(config))

    def findings(self) -> list[Finding]:
        """What of this machine's software and settings is right or wrong; imports nothing of it."""
        from roll_ascend.checks import findings
        from roll_ascend.machine import this_machine

        return findings(this_machine())

    def known_errors(self) -> list[KnownError]:
        """Errors of CANN, HCCL, torch_npu and vLLM-Ascend that users have met."""
        from roll_ascend.known_errors import KNOWN_ERRORS

        return list(KNOWN_ERRORS)

    def migration(self) -> Migration:
        """How configs of other platforms become configs of this one."""
        from roll_ascend.migration import MIGRATION

        return MIGRATION

    def worker_env(self, role: str) -> dict[str, str]:
        """Training and scoring roles differ from those that hold an engine."""
        return env.role_environment(role)

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine has these wherever it runs: as a role of its own, or as a judge inside a reward.

        They are for every process of the engine, whatever starts it and however many there are: vLLM's executors
        hand down the environment of the process that made the engine.
        """
        return EngineDefaults(env=env.generation_environment())
