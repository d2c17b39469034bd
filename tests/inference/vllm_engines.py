"""Engines of the real vLLM for tests."""

from pathlib import Path
from typing import Any

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference.vllm.strategy import VllmStrategy
from roll_core.platforms.cpu import CpuPlatform

NOT_INSTALLED = "vllm is not installed here: `make test-vllm` has an environment with it"


def vllm_role(folder: Path, *, devices: int = 1, dtype: str = "fp32", **strategy_config: Any) -> WorkerConfig:
    """A role that serves the model in a folder, as an engine on some devices."""
    return WorkerConfig(
        name="actor_infer",
        model_args={"model_name_or_path": str(folder), "dtype": dtype},
        strategy_args={"strategy_name": "vllm", "strategy_config": strategy_config},
        device_mapping=list(range(devices)),
    )


def make_vllm(folder: Path, **options: Any) -> VllmStrategy:
    """An engine that has not been started."""
    return VllmStrategy(vllm_role(folder, **options), CpuPlatform(), WorkerContext("actor_infer"))
