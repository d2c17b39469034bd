"""The engine contract on the sglang strategy over a stand-in for SGLang, which cannot run without an accelerator.

Shown is what the strategy does with SGLang's protocol, not what SGLang does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from roll_core.errors import BadRequest
from roll_core.inference import GenerationRequest, InferStrategy, SamplingParams
from roll_core.inference.sglang.strategy import SglangStrategy
from roll_core.testing import infer_contract
from roll_core.testing.infer_contract import InferContract, Start
from tests.inference.sglang_engines import make_sglang, plant


class TestSglang(InferContract):
    """One engine, in a process of its own."""

    shares_engines = True

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def installed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            plant(monkeypatch, tmp_path_factory.mktemp("site"))
            yield

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        return make_sglang(folder, **strategy_config)

    def break_down(self, engine: InferStrategy) -> str:
        assert isinstance(engine, SglangStrategy)
        pid = engine.engine.process.pid
        psutil.Process(pid).kill()
        return f"process {pid} (SGLang's engine) ended with code -9"

    @pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
    def test_log_probs_are_of_logits_over_temperature(
        self, start: Start, folders: tuple[Path, Path], temperature: float
    ) -> None:
        """As the contract's own, without a repetition penalty, which is refused: SGLang's log-probs come after it."""
        engine, prompt = start(), infer_contract.PROMPTS[0]
        params = [SamplingParams(20, temperature), SamplingParams(20, temperature, top_p=0.95, top_k=40)]
        requests = [GenerationRequest(str(number), prompt, one, seed=number) for number, one in enumerate(params)]
        for completion in engine.generate(requests):
            expected = infer_contract._log_probs(folders[0], prompt, completion, temperature or 1.0)
            assert completion.log_probs == pytest.approx(expected, abs=self.log_prob_tolerance)
        with pytest.raises(BadRequest, match="SGLang applies it before it takes the log-probs"):
            list(engine.generate([GenerationRequest("x", prompt, SamplingParams(4, repetition_penalty=1.3), 0)]))
