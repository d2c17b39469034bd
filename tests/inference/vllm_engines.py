"""Engines of the real vLLM for tests."""

import sys
import time
from pathlib import Path
from typing import Any

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference.relay import Inlet
from roll_core.inference.vllm.strategy import VllmStrategy
from roll_core.inference.vllm.worker import WorkerExtension
from roll_core.platforms.cpu import CpuPlatform
from roll_core.weights import digest_of

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


class FaultyExtension(WorkerExtension):
    """Does what it should, unless a file `fault` in the model's folder names a fault.

    `lazy`: rank 1 reads an update to its end and loads none of it. `forgetful`: the model drops a tensor silently.
    """

    rank: int

    def roll_take_weights(self, address: str) -> tuple[str, list[str]]:
        file = Path(self.vllm_config.model_config.model) / "fault"
        fault = file.read_text() if file.is_file() else ""
        if fault == "lazy" and self.rank == 1:
            return self._read_only(address)
        return self._load_some(address) if fault == "forgetful" else super().roll_take_weights(address)

    def _read_only(self, address: str) -> tuple[str, list[str]]:
        with Inlet(address) as inlet:
            for _path, _entries in inlet.buckets():
                inlet.opened()
        return digest_of(inlet.version, []), []

    def _load_some(self, address: str) -> tuple[str, list[str]]:
        kind = type(self.model_runner.get_model())
        load = kind.load_weights

        def load_some(model: Any, weights: Any) -> Any:
            return load(model, ((name, tensor) for name, tensor in weights if name != "model.norm.weight"))

        kind.load_weights = load_some
        try:
            return super().roll_take_weights(address)
        finally:
            kind.load_weights = load


if __name__ == "__main__":
    engine = make_vllm(Path(sys.argv[1]))  # held: without its owner's reference an engine ends
    engine.start()
    print("started", flush=True)
    time.sleep(600)
