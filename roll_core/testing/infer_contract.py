"""What every inference strategy must keep, as tests to run on yours.

Subclass `InferContract` in a test file and say how an engine is made from a model folder:

    class TestMyEngine(InferContract):
        def make(self, folder, **strategy_config):
            return MyStrategy(role_of(folder, strategy_config), MyPlatform(), WorkerContext("actor_infer"))

The models are tiny, random, in float32 and made in place; what an engine gives is compared with transformers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from roll_core.errors import IllegalOrder, WeightSyncError
from roll_core.inference import Completion, GenerationRequest, InferStrategy, SamplingParams
from roll_core.testing.contract import Contract
from roll_core.weights import WeightManifest, WeightReceiver
from roll_core.weights.packing import describe

VOCAB = 128
PROMPTS = ((5, 17, 100, 3), (9,) * 11, tuple(range(3, 40)), (64, 2), tuple(range(90, 60, -1)))


class InferContract(Contract):
    """Output, log-probs, seeds, aborts, weight updates and order of calls, alike for every engine."""

    log_prob_tolerance: ClassVar[float] = 1e-4
    """Largest difference of a log-prob from that of transformers in float32."""
    strategy_config: ClassVar[dict[str, Any]] = {}

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        """An engine of the model in a folder, in float32, not started."""
        raise NotImplementedError(f"{type(self).__name__} does not say how an engine is made")

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
        """Two models of the same shape with different weights, whose output layer is tied to the embedding."""
        first, second = (tmp_path_factory.mktemp(f"model_{seed}") for seed in range(2))
        return _write_model(first, 0), _write_model(second, 1)

    @pytest.fixture
    def start(self, folders: tuple[Path, Path]) -> Iterator[Callable[..., InferStrategy]]:
        """Starts engines of the first model; each is stopped at the end."""
        engines: list[InferStrategy] = []

        def start_engine(**strategy_config: Any) -> InferStrategy:
            engine = self.make(folders[0], **(self.strategy_config | strategy_config))
            engines.append(engine)
            engine.start()
            return engine

        yield start_engine
        for engine in engines:
            engine.stop()

    def test_greedy_output_is_that_of_transformers(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path]
    ) -> None:
        assert _greedy(start()) == _transformers_greedy(folders[0])

    @pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
    def test_log_probs_are_of_logits_over_temperature(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path], temperature: float
    ) -> None:
        params = SamplingParams(20, temperature, top_p=0.95, top_k=40)
        for completion in start().generate(_requests(params, samples=2)):
            prompt = PROMPTS[int(completion.request_id.split("/")[0])]
            expected = _log_probs(folders[0], prompt, completion, temperature or 1.0)
            assert completion.log_probs == pytest.approx(expected, abs=self.log_prob_tolerance)

    def test_samples_of_a_prompt_differ_and_seeds_repeat(self, start: Callable[..., InferStrategy]) -> None:
        engine, requests = start(), _requests(SamplingParams(16), samples=8)
        first, again = _by_id(engine.generate(requests)), _by_id(engine.generate(requests))
        assert {name: c.token_ids for name, c in first.items()} == {name: c.token_ids for name, c in again.items()}
        for prompt in range(len(PROMPTS)):
            assert len({first[f"{prompt}/{sample}"].token_ids for sample in range(8)}) == 8

    def test_two_hundred_concurrent_requests_come_back_once_each(self, start: Callable[..., InferStrategy]) -> None:
        engine, requests = start(), _requests(SamplingParams(12), samples=40)

        def call(request: GenerationRequest) -> Completion:
            (completion,) = engine.generate([request])
            return completion

        with ThreadPoolExecutor(len(requests)) as pool:
            completions = list(pool.map(call, requests, timeout=300))
        assert [c.request_id for c in completions] == [request.request_id for request in requests]
        assert {len(c.token_ids) for c in completions} == {12}

    def test_completions_end_at_stop_tokens_and_keep_them(self, start: Callable[..., InferStrategy]) -> None:
        engine, free = start(), _by_id(start().generate(_requests(SamplingParams(24))))
        for name, completion in free.items():
            end = completion.token_ids[9]
            params = SamplingParams(24, stop_token_ids=(end,))
            (request,) = [one for one in _requests(params) if one.request_id == name]
            (ended,) = engine.generate([request])
            assert ended.token_ids == completion.token_ids[: completion.token_ids.index(end) + 1]
            assert ended.finish_reason == "stop"

    def test_abort_ends_requests_soon_and_keeps_what_they_have(self, start: Callable[..., InferStrategy]) -> None:
        engine, requests = start(), _requests(SamplingParams(200), samples=12)
        results = engine.generate(requests)
        ids = [request.request_id for request in requests]
        aborted, began = engine.abort([*ids[::2], "unknown"]), time.monotonic()
        completions = _by_id(results)
        assert set(aborted) <= set(ids[::2])
        assert sorted(completions) == sorted(ids)
        assert {name for name, c in completions.items() if c.finish_reason == "abort"} == set(aborted)
        assert all(len(c.token_ids) == len(c.log_probs) for c in completions.values())
        assert {len(c.token_ids) for name, c in completions.items() if name not in aborted} == {200}
        assert time.monotonic() - began < 120
        assert engine.abort() == []

    def test_after_an_update_the_output_is_the_new_models(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path]
    ) -> None:
        engine = start()
        before = _greedy(engine)
        receiver = _Weights(_state(folders[1]), version=3)
        assert engine.update_weights(receiver) == receiver.manifest.digest
        after = _greedy(engine)
        assert after == _transformers_greedy(folders[1])
        assert after != before
        assert {c.weight_version for c in engine.generate(_requests(SamplingParams(4)))} == {3}

    def test_an_update_that_lacks_a_tensor_is_refused(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path]
    ) -> None:
        state = _state(folders[1])
        del state["model.layers.1.mlp.down_proj.weight"]
        with pytest.raises(WeightSyncError, match="down_proj"):
            start().update_weights(_Weights(state, version=3))

    def test_a_dummy_engine_waits_for_its_weights(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path]
    ) -> None:
        engine = start(load_format="dummy")
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))
        engine.update_weights(_Weights(_state(folders[1]), version=0))
        assert _greedy(engine) == _transformers_greedy(folders[1])

    def test_nothing_is_generated_asleep_and_wake_restores(
        self, start: Callable[..., InferStrategy], folders: tuple[Path, Path]
    ) -> None:
        engine = start()
        engine.sleep()
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))
        engine.wake()
        engine.update_weights(_Weights(_state(folders[0]), version=1))
        assert _greedy(engine) == _transformers_greedy(folders[0])

    def test_a_stopped_engine_generates_nothing(self, start: Callable[..., InferStrategy]) -> None:
        engine = start()
        engine.stop()
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))


class _Weights(WeightReceiver):
    def __init__(self, state: dict[str, torch.Tensor], version: int) -> None:
        items = list(state.items())
        self.buckets = [items[start : start + 5] for start in range(0, len(items), 5)]
        self.manifest: WeightManifest = describe(iter(self.buckets), version)

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        yield from self.buckets


def _write_model(folder: Path, seed: int) -> Path:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    # Heads of 32: some engines have no kernel for smaller ones.
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def _model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def _state(folder: Path) -> dict[str, torch.Tensor]:
    return dict(_model(folder).state_dict())


def _requests(params: SamplingParams, samples: int = 1) -> list[GenerationRequest]:
    return [
        GenerationRequest(f"{index}/{sample}", prompt, params, seed=1000 * index + sample, group=f"{index}")
        for index, prompt in enumerate(PROMPTS)
        for sample in range(samples)
    ]


def _by_id(completions: Iterator[Completion]) -> dict[str, Completion]:
    found = list(completions)
    assert len({completion.request_id for completion in found}) == len(found), "a request came back twice"
    return {completion.request_id: completion for completion in found}


def _greedy(engine: InferStrategy) -> list[tuple[int, ...]]:
    completions = _by_id(engine.generate(_requests(SamplingParams(24, temperature=0.0))))
    return [completions[f"{index}/0"].token_ids for index in range(len(PROMPTS))]


def _transformers_greedy(folder: Path) -> list[tuple[int, ...]]:
    model, found = _model(folder), []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": 24, "pad_token_id": 0}
        found.append(
            tuple(model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist())
        )
    return found


def _log_probs(folder: Path, prompt: Sequence[int], completion: Completion, temperature: float) -> list[float]:
    with torch.inference_mode():
        logits = _model(folder)(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
    scores = torch.log_softmax(logits / temperature, dim=-1)
    chosen: list[float] = scores.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()
    return chosen
