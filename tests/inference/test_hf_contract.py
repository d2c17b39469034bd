from pathlib import Path
from typing import Any

import torch

from roll_core.inference import InferStrategy
from roll_core.inference.hf import HfInferStrategy
from roll_core.testing.infer_contract import InferContract
from tests.inference.models import make_engine


class TestCompactDecoder(InferContract):
    """hf_infer with its own decoder, which is what `auto` takes here."""

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_engine(folder, **strategy_config)

    def break_down(self, engine: InferStrategy) -> str:
        def step(_tokens_N: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("the device is lost")

        assert isinstance(engine, HfInferStrategy)
        engine.engine.decoder.step = step  # type: ignore[method-assign]
        return "RuntimeError: the device is lost"


class TestTransformersDecoder(TestCompactDecoder):
    """hf_infer with the model's own code."""

    strategy_config = {"decoder": "transformers"}


class TestManyMoreRequestsThanRun(TestCompactDecoder):
    """hf_infer with few places, so that requests wait for others to leave."""

    strategy_config = {"max_running_requests": 3, "max_batch_tokens": 16}
