from pathlib import Path
from typing import Any

from roll_core.inference import InferStrategy
from roll_core.testing.infer_contract import InferContract
from tests.inference.models import make_engine


class TestCompactDecoder(InferContract):
    """hf_infer with its own decoder, which is what `auto` takes here."""

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_engine(folder, **strategy_config)


class TestTransformersDecoder(InferContract):
    """hf_infer with the model's own code."""

    strategy_config = {"decoder": "transformers"}

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_engine(folder, **strategy_config)


class TestManyMoreRequestsThanRun(InferContract):
    """hf_infer with few places, so that requests wait for others to leave."""

    strategy_config = {"max_running_requests": 3, "max_batch_tokens": 16}

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_engine(folder, **strategy_config)
