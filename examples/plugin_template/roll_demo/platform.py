"""The platform `demo`: devices that are only numbers, each of them a process."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from roll_core.errors import Problem
from roll_core.findings import Finding, KnownError, Level
from roll_core.platforms import Ability, EngineDefaults, Memory, Platform

if TYPE_CHECKING:
    import torch


class DemoPlatform(Platform):
    """DEMO_DEVICES of them on each machine. torch knows them as `cpu`; a real platform names its own device type."""

    name: ClassVar[str] = "demo"
    device_type: ClassVar[str] = "cpu"
    ray_resource: ClassVar[str] = "DEMO"
    visible_devices_env: ClassVar[str] = "DEMO_VISIBLE_DEVICES"
    collective_backend: ClassVar[str] = "gloo"

    def device_count(self) -> int:
        """As many as are visible, else DEMO_DEVICES."""
        visible = self.visible_ids()
        return int(os.environ.get("DEMO_DEVICES", "0")) if visible is None else len(visible)

    def device(self, index: int = 0) -> torch.device:
        """A real platform leaves this out: by default it is the device type and the logical index."""
        import torch

        return torch.device("cpu")

    def abilities(self) -> frozenset[Ability]:
        """What works here; claim only what you have seen work."""
        return frozenset({Ability.BF16})

    def problems(self, config: Any) -> list[Problem]:
        """What in a config no demo device can do."""
        dtype = config.actor_train.model_args.dtype
        if dtype != "fp16":
            return []
        return [Problem("actor_train.model_args.dtype", "a demo device has no float16", dtype, "bf16")]

    def findings(self) -> list[Finding]:
        """What `roll doctor` says of this machine."""
        count = os.environ.get("DEMO_DEVICES", "0")
        if re.fullmatch(r"\d+", count):
            return [Finding(Level.OK, "demo devices", f"DEMO_DEVICES is {count}")]
        found = f"DEMO_DEVICES is '{count}', which is no number"
        return [Finding(Level.ERROR, "demo devices", found, "export DEMO_DEVICES=2")]

    def known_errors(self) -> list[KnownError]:
        """What `roll doctor --explain` answers."""
        pattern = r"invalid literal for int\(\).*DEMO"
        return [KnownError((pattern,), "DEMO_DEVICES is no number", "export DEMO_DEVICES=2")]

    def worker_env(self, role: str) -> dict[str, str]:
        """One thread per worker: many demo devices share few cores."""
        return {"OMP_NUM_THREADS": "1"}

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """An engine of vLLM would run without graphs here."""
        return EngineDefaults(args={"enforce_eager": True}) if engine == "vllm" else EngineDefaults()

    def empty_cache(self) -> None:
        """Nothing is cached outside the process's own heap."""

    def memory(self) -> Memory:
        """The process's memory stands for that of its device; a real platform leaves this out."""
        import psutil

        used = psutil.Process().memory_info().rss
        return Memory(used, used, used, psutil.virtual_memory().total)
