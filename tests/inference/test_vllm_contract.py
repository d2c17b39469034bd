"""The engine contract on the real vLLM, whose processes take half a minute to start: tests share one."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from roll_core.inference import InferStrategy
from roll_core.inference.vllm import installed
from roll_core.inference.vllm.strategy import VllmStrategy
from roll_core.testing.infer_contract import InferContract
from tests.inference.vllm_engines import NOT_INSTALLED, make_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


class TestVllm(InferContract):
    """One engine with one worker."""

    shares_engines = True
    # Blocks of 32 tokens, so that the long prompt's beginning is kept.
    strategy_config = {"block_size": 32, "max_model_len": 1024}
    unavailable = "" if installed.folder() else NOT_INSTALLED

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_vllm(folder, **strategy_config)

    def break_down(self, engine: InferStrategy) -> str:
        assert isinstance(engine, VllmStrategy)
        [core] = engine.engine.processes
        psutil.Process(core.pid).kill()
        return f"process {core.pid} ({core.name}) ended with code -9"
