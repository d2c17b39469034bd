"""What core itself offers, through the same hooks as any plugin."""

import importlib.util
from functools import partial

from roll_core import PLUGIN_API, Availability, Backend, hookimpl

ROLL_PLUGIN_API = PLUGIN_API


def _probe_package(name: str) -> Availability:
    """Whether an engine's package is installed, told without importing it."""
    if importlib.util.find_spec(name) is None:
        return Availability(False, f"there is no package '{name}' here")
    return Availability(True, f"package '{name}' is installed")


# Made once, so that loading twice gives equal registries.
_HAS_VLLM, _HAS_SGLANG = partial(_probe_package, "vllm"), partial(_probe_package, "sglang")


@hookimpl
def roll_platforms() -> list[Backend]:
    """The platform every machine has. Any other whose device is there comes before it."""
    return [Backend("cpu", "roll_core.platforms.cpu:CpuPlatform", "plain processors", priority=-1000)]


@hookimpl
def roll_train_strategies() -> list[Backend]:
    """FSDP2, to train and to score; the second name is for roles that have no optimiser."""
    target = "roll_core.training.fsdp2:Fsdp2Strategy"
    return [
        Backend("fsdp2_train", target, "training with fully sharded data parallelism (FSDP2)"),
        Backend("fsdp2_infer", target, "scoring with the same sharding, without an optimiser"),
    ]


@hookimpl
def roll_infer_strategies() -> list[Backend]:
    """Generation with transformers' own models, and with vLLM or SGLang where they are installed."""
    vllm = "roll_core.inference.vllm.strategy:VllmStrategy"
    sglang = "roll_core.inference.sglang.strategy:SglangStrategy"
    return [
        Backend("hf_infer", "roll_core.inference.hf:HfInferStrategy", "continuous batching on transformers models"),
        Backend("vllm", vllm, "vLLM's asynchronous engine", probe=_HAS_VLLM, extra="vllm"),
        Backend("sglang", sglang, "SGLang's engine", probe=_HAS_SGLANG, extra="sglang"),
    ]


@hookimpl
def roll_transports() -> list[Backend]:
    """Rows between processes in Ray's object store, and rows within one process."""
    return [
        Backend("ray", "roll_core.transport.ray_store:RayTransport", "rows as plain bytes in Ray's object store"),
        Backend("local", "roll_core.transport.local:LocalTransport", "rows in the memory of one process"),
    ]
