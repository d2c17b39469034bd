"""The platform that every machine has: a device is a process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from roll_core.platforms.base import Ability, EngineDefaults, Memory, Platform

if TYPE_CHECKING:
    import torch


VLLM = EngineDefaults(
    args={
        # Four times as fast as bfloat16 where the processor has no instructions for it, and exact.
        "dtype": "float32",
        # Compiling takes half a minute and gained nothing.
        "enforce_eager": True,
        # Otherwise the cache is nearly all of the machine's memory, or an error where that is not free.
        "kv_cache_memory_bytes": 2**30,
        # A request with a seed whose prompt is read in parts ends the engine of 0.32: it turns its random numbers back
        # by an offset that generators of this device do not have.
        "enable_chunked_prefill": False,
    },
    env={
        # Several engines and trainers share the cores; each process bound to one core would meet on the first.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # The first log-probs would compile a helper for fifteen seconds.
        "TORCHDYNAMO_DISABLE": "1",
    },
)


class CpuPlatform(Platform):
    """Plain processors. Several workers may share a core, so a config may name more devices than cores."""

    name: ClassVar[str] = "cpu"
    device_type: ClassVar[str] = "cpu"
    ray_resource: ClassVar[str] = "CPU"
    collective_backend: ClassVar[str] = "gloo"

    def device_count(self) -> int:
        """Number of cores this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def device(self, index: int = 0) -> torch.device:
        """The one cpu device; the index is ignored."""
        import torch

        return torch.device("cpu")

    def abilities(self) -> frozenset[Ability]:
        """bfloat16 works on every processor torch supports, if slowly."""
        return frozenset({Ability.BF16})

    def worker_env(self, role: str) -> dict[str, str]:
        """One thread per worker: with several workers, more threads than cores make every one of them slower."""
        return {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

    def engine_defaults(self, engine: str) -> EngineDefaults:
        """What lets an engine made for accelerators run beside other processes of one machine."""
        return VLLM if engine == "vllm" else EngineDefaults()

    def device_uid(self, index: int = 0) -> str:
        """All processes of a node share one memory."""
        return "cpu"

    def empty_cache(self) -> None:
        """Nothing is cached outside the process's own heap."""

    def memory(self) -> Memory:
        """Resident set of this process, in bytes."""
        import psutil

        info: Any = psutil.Process().memory_info()
        return Memory(info.rss, info.rss, getattr(info, "peak_wset", info.rss), psutil.virtual_memory().total)
