"""A platform: the facts and operations by which one kind of device differs from another.

Facts are class attributes that can be read with no device and without torch. Operations have defaults, so
a new platform sets six facts and overrides what truly differs. There is no global platform: it is resolved
once on the driver and passed to whoever needs it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, final

from roll_core.errors import RollError

if TYPE_CHECKING:
    import torch

    from roll_core.errors import Problem
    from roll_core.findings import Finding, KnownError
    from roll_core.migration import Migration


class Ability(Enum):
    """Something a platform can do here and now; what a platform doesn't claim is never tried."""

    DEVICE_IPC = "share device memory between processes"
    SLEEP = "free an engine's device memory and restore it"
    BF16 = "compute in bfloat16"
    FP16 = "compute in float16"
    ULYSSES = "sequence parallelism over attention heads"


@dataclass(frozen=True)
class EngineDefaults:
    """What a platform changes in an inference engine's defaults. The user's own keys win."""

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """Bytes of one device's memory, for this process."""

    allocated: int
    reserved: int
    peak: int
    total: int


class Platform:
    """One kind of device. Subclasses set the facts and override operations where the default is wrong.

    Raises:
        TypeError: at class creation, when a subclass defines a public name that is not part of this contract.
    """

    name: ClassVar[str]
    """How a config asks for it."""
    device_type: ClassVar[str]
    """torch's name of the device."""
    ray_resource: ClassVar[str]
    """The Ray resource that counts the devices of a node; "CPU" means a device is only a process."""
    visible_devices_env: ClassVar[str] = ""
    """The variable that limits which devices a process sees; empty where there is none."""
    visible_devices_aliases: ClassVar[tuple[str, ...]] = ()
    """Other variables with the same meaning; set alike for every worker."""
    collective_backend: ClassVar[str]
    """torch.distributed's backend for tensors on the device."""
    attention: ClassVar[tuple[str, ...]] = ("sdpa", "eager")
    """Attention implementations of transformers that work here, best first."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = {name for name in dir(Platform) if not name.startswith("_")} | set(Platform.__annotations__)
        for name in vars(cls):
            if name.startswith("_") or name in known:
                continue
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise TypeError(f"{cls.__name__}.{name} is not part of the Platform contract{hint}")

    def setup(self) -> None:
        """Prepare this process; called once per worker, before torch touches the device."""

    def device_count(self) -> int:
        """Number of devices visible to this process."""
        return int(self.torch.device_count())

    def device(self, index: int = 0) -> torch.device:
        """The torch device of a logical index into the visible devices."""
        import torch

        return torch.device(self.device_type, index)

    def abilities(self) -> frozenset[Ability]:
        """What works here and now."""
        return frozenset()

    def problems(self, config: Any) -> list[Problem]:
        """What in a pipeline config can't work on this platform, whatever the machine: plans use it too."""
        return []

    def findings(self) -> list[Finding]:
        """What of this machine's software and settings is right or wrong for the platform; imports nothing heavy."""
        return []

    def known_errors(self) -> list[KnownError]:
        """Errors that users of the platform meet, with cause and remedy."""
        return []

    def migration(self) -> Migration:
        """How `roll migrate` makes a config of another platform one for this platform."""
        from roll_core.migration import Migration

        return Migration()

    def worker_env(self, role: str) -> dict[str, str]:
        """Defaults for the environment of a role's workers. Everything the user sets wins over them."""
        return {}

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """Defaults for an inference engine ("vllm", "sglang", ...), for every executor and world size."""
        return EngineDefaults()

    def device_uid(self, index: int = 0) -> str:
        """Identity of a device, equal in every process that sees it; pairs sender and receiver of an IPC handle."""
        visible = self.visible_ids()
        return visible[index] if visible else str(index)

    @property
    def torch(self) -> Any:
        """torch's module for this device: `synchronize`, memory figures, random state, streams."""
        import torch

        return torch.get_device_module(self.device_type)

    def empty_cache(self) -> None:
        """Give cached device memory back."""
        self.torch.empty_cache()

    def memory(self) -> Memory:
        """Memory figures of the current device."""
        torch_device = self.torch
        _free, total = torch_device.mem_get_info()
        return Memory(
            allocated=int(torch_device.memory_allocated()),
            reserved=int(torch_device.memory_reserved()),
            peak=int(torch_device.max_memory_allocated()),
            total=int(total),
        )

    @final
    def ray_options(self, num_devices: float) -> dict[str, Any]:
        """Ray's actor options that ask for a number of devices."""
        if self.ray_resource == "CPU":
            return {"num_cpus": 0}
        if self.ray_resource == "GPU":
            return {"num_cpus": 0, "num_gpus": num_devices}
        return {"num_cpus": 0, "resources": {self.ray_resource: num_devices}}

    @final
    def visible(self, ids: Sequence[str]) -> dict[str, str]:
        """Environment that shows a worker exactly these devices, and keeps Ray from changing it.

        `ids` are opaque text, as they stand in the node's own list of visible devices.
        """
        if not self.visible_devices_env:
            return {}
        names = (self.visible_devices_env, *self.visible_devices_aliases)
        joined = ",".join(ids)
        return {name: joined for name in names} | {f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in names}

    @final
    def visible_ids(self, environ: Mapping[str, str] | None = None) -> list[str] | None:
        """The ids in the visible-devices variable, in order; None where the variable is absent.

        Raises:
            RollError: the variable and one of its aliases are both set and differ.
        """
        environ = os.environ if environ is None else environ
        names = [name for name in (self.visible_devices_env, *self.visible_devices_aliases) if name in environ]
        lists = [[part.strip() for part in environ[name].split(",") if part.strip()] for name in names]
        for name, ids in zip(names, lists):
            if ids != lists[0]:
                shown = f"{names[0]}={environ[names[0]]} and {name}={environ[name]}"
                raise RollError(f"two lists of visible devices differ: {shown}\n  try: unset one of them")
        return lists[0] if lists else None
