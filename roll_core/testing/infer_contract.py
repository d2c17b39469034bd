"""What every inference strategy must keep, as tests to run on yours.

Subclass `InferContract` in a test file and say how an engine is made from a model folder:

    class TestMyEngine(InferContract):
        def make(self, folder, **strategy_config):
            return MyStrategy(role_of(folder, strategy_config), MyPlatform(), WorkerContext("actor_infer"))

The models are tiny, random, in float32 and made in place; what an engine gives is compared with transformers. Such
a role asks for the precision `fp32`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from roll_core.errors import EngineFailed, IllegalOrder, WeightSyncError
from roll_core.inference import Completion, EngineState, GenerationRequest, InferStrategy, SamplingParams
from roll_core.platforms import Ability
from roll_core.testing.contract import Contract, listed, needs, within
from roll_core.weights import WeightManifest, WeightReceiver
from roll_core.weights.packing import describe, largest_bucket, pack, unpack

VOCAB = 128
LONG_PROMPT = tuple(1 + 7 * position % 120 for position in range(200))
"""Long enough that engines which keep the beginnings of prompts keep this one's."""
Start = Callable[..., InferStrategy]
PROMPTS = ((5, 17, 100, 3), (9,) * 11, tuple(range(3, 40)), (64, 2), tuple(range(90, 60, -1)), LONG_PROMPT)


class InferContract(Contract):
    """Output, log-probs, seeds, aborts, weight updates and order of calls, alike for every engine."""

    log_prob_tolerance: ClassVar[float] = 1e-4
    """Largest difference of a log-prob from that of transformers in float32."""
    strategy_config: ClassVar[dict[str, Any]] = {}
    deadline_s: ClassVar[float] = 60.0
    """No abort may take longer, nor the end of what was aborted."""
    shares_engines: ClassVar[bool] = False
    """Tests use one engine in turn, each after an update to the first model's weights: where a start takes long."""

    def make(self, folder: Path, **strategy_config: Any) -> InferStrategy:
        """An engine of the model in a folder, in float32, not started."""
        raise NotImplementedError(f"{type(self).__name__} does not say how an engine is made")

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
        """Two models of the same shape with different weights, whose output layer is tied to the embedding."""
        first, second = (tmp_path_factory.mktemp(f"model_{seed}") for seed in range(2))
        return _write_model(first, 0), _write_model(second, 1)

    def break_down(self, engine: InferStrategy) -> str:
        """Let a started engine fail as a crash would; a text that the error of its requests must have in it."""
        pytest.skip(f"{type(self).__name__} does not say how its engine breaks down")

    @pytest.fixture(scope="class")
    @classmethod
    def _shared(cls) -> Iterator[dict[str, InferStrategy]]:
        shared: dict[str, InferStrategy] = {}
        yield shared
        for engine in shared.values():
            engine.stop()

    @pytest.fixture
    def start(self, folders: tuple[Path, Path], _shared: dict[str, InferStrategy]) -> Iterator[Start]:
        """Starts engines of the first model, or takes the shared one; each is stopped at the end."""
        engines: list[InferStrategy] = []

        def start_engine(**strategy_config: Any) -> InferStrategy:
            shared = _shared.get("engine")
            if shared is not None and not strategy_config and shared.lifecycle.state is EngineState.READY:
                shared.update_weights(_Weights(_state(folders[0]), version=1))
                return shared
            engine = self.make(folders[0], **(self.strategy_config | strategy_config))
            if self.shares_engines and not strategy_config:
                _shared["engine"] = engine
            else:
                engines.append(engine)
            engine.start()
            return engine

        yield start_engine
        for engine in engines:
            engine.stop()

    def test_greedy_output_is_that_of_transformers(self, start: Start, folders: tuple[Path, Path]) -> None:
        found, expected = _greedy(start()), _transformers_greedy(folders[0])
        assert found == expected, "greedy output differs from that of transformers"

    @pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
    def test_log_probs_are_of_logits_over_temperature(
        self, start: Start, folders: tuple[Path, Path], temperature: float
    ) -> None:
        engine = start()
        # Alone and beside each other: what restricts one request's sampling must not reach another's log-probs.
        restrictions: list[dict[str, Any]] = [{}, {"top_p": 0.95, "top_k": 40}, {"repetition_penalty": 1.3}]
        requests = [
            replace(request, request_id=f"{request.request_id}/{number}")
            for number, options in enumerate(restrictions)
            for request in _requests(SamplingParams(20, temperature, **options), samples=2)
        ]
        for completion in [*engine.generate(requests[:10]), *engine.generate(requests)]:
            prompt = PROMPTS[int(completion.request_id.split("/")[0])]
            expected = _log_probs(folders[0], prompt, completion, temperature or 1.0)
            assert len(completion.log_probs) == len(expected), "a completion has not one log-prob per token"
            furthest = max(abs(found - there) for found, there in zip(completion.log_probs, expected))
            assert furthest <= self.log_prob_tolerance, (
                f"log-probs at temperature {temperature:g} differ from transformers' by {furthest:.2g}; "
                f"{self.log_prob_tolerance:g} is allowed"
            )

    def test_samples_of_a_prompt_differ_and_seeds_repeat(self, start: Start) -> None:
        engine, requests = start(), _requests(SamplingParams(16), samples=8)
        first, again = _by_id(engine.generate(requests)), _by_id(engine.generate(requests))
        other = [name for name, completion in first.items() if completion.token_ids != again[name].token_ids]
        assert not other, f"{len(other)} of {len(first)} requests with a seed gave other tokens the second time"
        for prompt in range(len(PROMPTS)):
            assert len({first[f"{prompt}/{sample}"].token_ids for sample in range(8)}) == 8

    def test_two_hundred_concurrent_requests_come_back_once_each(self, start: Start) -> None:
        engine, requests = start(), _requests(SamplingParams(12), samples=34)

        def call(request: GenerationRequest) -> Completion:
            (completion,) = engine.generate([request])
            return completion

        with ThreadPoolExecutor(len(requests)) as pool:
            completions = list(pool.map(call, requests, timeout=300))
        assert [c.request_id for c in completions] == [request.request_id for request in requests]
        assert {len(c.token_ids) for c in completions} == {12}

    def test_completions_end_at_stop_tokens_and_keep_them(self, start: Start) -> None:
        engine = start()
        free = _by_id(engine.generate(_requests(SamplingParams(24))))
        for name, completion in free.items():
            end = completion.token_ids[9]
            params = SamplingParams(24, stop_token_ids=(end,))
            (request,) = [one for one in _requests(params) if one.request_id == name]
            (ended,) = engine.generate([request])
            expected = completion.token_ids[: completion.token_ids.index(end) + 1]
            assert ended.token_ids == expected, (
                f"a stop token must end its completion as the last of {len(expected)} tokens; "
                f"{len(ended.token_ids)} came, {'with' if end in ended.token_ids else 'without'} it"
            )
            assert ended.finish_reason == "stop", f"ended by a stop token with the reason '{ended.finish_reason}'"

    def test_stop_strings_end_completions_where_they_appear(self, start: Start) -> None:
        engine = start()
        free = _by_id(engine.generate(_requests(SamplingParams(24))))
        for name, completion in free.items():
            # From the middle of a token to the middle of the next one.
            stop = _text(completion.token_ids[8])[1:] + _text(completion.token_ids[9])[:-1]
            (request,) = [one for one in _requests(SamplingParams(24, stop=(stop,))) if one.request_id == name]
            (ended,) = engine.generate([request])
            appears = next(n for n in range(1, 25) if stop in "".join(map(_text, completion.token_ids[:n])))
            assert ended.token_ids == completion.token_ids[:appears]
            assert ended.finish_reason == "stop"

    @pytest.mark.parametrize("wait_s", [0.0, 0.5], ids=["at once", "later"])
    def test_abort_ends_requests_soon_and_keeps_what_they_have(self, start: Start, wait_s: float) -> None:
        engine, requests = start(), _requests(SamplingParams(200), samples=6)
        results = engine.generate(requests)
        ids = [request.request_id for request in requests]
        time.sleep(wait_s)
        aborted = within(self.deadline_s / 6, "abort", lambda: engine.abort([*ids[::2], "unknown"]))
        completions = within(self.deadline_s, "what was left after an abort", lambda: _by_id(results))
        strangers = set(aborted) - set(ids[::2])
        assert not strangers, f"abort returned {listed(sorted(strangers))}, which it was not asked for"
        lost = set(ids) - set(completions)
        assert not lost, f"after an abort {len(lost)} of {len(ids)} requests never came back"
        ended = {name for name, c in completions.items() if c.finish_reason == "abort"}
        assert ended == set(aborted), f"abort returned {len(aborted)} ids, {len(ended)} requests came back aborted"
        uneven = [name for name, c in completions.items() if len(c.token_ids) != len(c.log_probs)]
        assert not uneven, f"after an abort {len(uneven)} completions have not one log-prob per token"
        short = [name for name, c in completions.items() if name not in aborted and len(c.token_ids) != 200]
        assert not short, f"{len(short)} requests that were not aborted were cut short"
        assert engine.abort() == [], "abort returned ids while nothing was running"

    def test_what_was_aborted_is_a_beginning_of_what_would_have_come(self, start: Start) -> None:
        engine, requests = start(), _requests(SamplingParams(200, temperature=0.0))
        results = engine.generate(requests)
        time.sleep(0.3)
        engine.abort()
        parts, whole = _by_id(results), _by_id(engine.generate(requests))
        for name, part in parts.items():
            assert part.token_ids == whole[name].token_ids[: len(part.token_ids)]

    def test_after_an_update_the_output_is_the_new_models(self, start: Start, folders: tuple[Path, Path]) -> None:
        engine = start()
        # Twice, so that an engine that keeps beginnings of prompts has them from the old weights.
        before = [_greedy(engine), _greedy(engine)][1]
        receiver = _Weights(_state(folders[1]), version=3)
        assert engine.update_weights(receiver) == receiver.manifest.digest
        after = _greedy(engine)
        assert after == _transformers_greedy(folders[1]), (
            f"after an update the output is {'still the old' if after == before else 'not the new'} model's"
        )
        assert after != before
        versions = {c.weight_version for c in engine.generate(_requests(SamplingParams(4)))}
        assert versions == {3}, f"after an update to version 3 completions say version {versions}"

    @pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight"])
    def test_an_update_that_lacks_a_tensor_is_refused_and_the_old_weights_stay(
        self, start: Start, folders: tuple[Path, Path], name: str
    ) -> None:
        state = _state(folders[1])
        del state[name]
        engine = start()
        with pytest.raises(WeightSyncError, match=name):
            engine.update_weights(_Weights(state, version=3))
        assert _greedy(engine) == _transformers_greedy(folders[0])

    @pytest.mark.parametrize("lost", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight"])
    def test_a_tensor_lost_on_the_way_is_noticed_and_a_whole_update_mends_it(
        self, start: Start, folders: tuple[Path, Path], lost: str
    ) -> None:
        engine = start()
        with pytest.raises(WeightSyncError, match="did not arrive as announced"):
            engine.update_weights(_Weights(_state(folders[1]), version=3, lost=lost))
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))
        engine.update_weights(_Weights(_state(folders[1]), version=4))
        assert _greedy(engine) == _transformers_greedy(folders[1])

    def test_weights_do_not_change_under_running_requests(self, start: Start, folders: tuple[Path, Path]) -> None:
        engine = start()
        results = engine.generate(_requests(SamplingParams(200), samples=8))
        with pytest.raises(IllegalOrder, match="running"):
            engine.update_weights(_Weights(_state(folders[1]), version=3))
        engine.abort()
        assert len(_by_id(results)) == 8 * len(PROMPTS)

    def test_a_dummy_engine_waits_for_its_weights(self, start: Start, folders: tuple[Path, Path]) -> None:
        engine = start(load_format="dummy")
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))
            pytest.fail("an engine without weights took requests")
        engine.update_weights(_Weights(_state(folders[1]), version=0))
        assert _greedy(engine) == _transformers_greedy(folders[1])

    def test_nothing_is_generated_asleep_and_wake_restores(self, start: Start, folders: tuple[Path, Path]) -> None:
        engine = start()
        engine.sleep()
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))
            pytest.fail("an engine that is asleep took requests")
        with pytest.raises(IllegalOrder):
            engine.update_weights(_Weights(_state(folders[0]), version=2))
        engine.wake()
        engine.update_weights(_Weights(_state(folders[0]), version=2))
        assert _greedy(engine) == _transformers_greedy(folders[0])

    @needs(Ability.SLEEP)
    def test_sleep_frees_device_memory(self, start: Start) -> None:
        engine = start()
        before, _total = engine.platform.torch.mem_get_info()
        engine.sleep()
        after, _total = engine.platform.torch.mem_get_info()
        engine.wake()
        assert after > before

    def test_an_engine_that_breaks_down_fails_its_requests_with_the_cause(self, start: Start) -> None:
        engine = start()
        results = engine.generate(_requests(SamplingParams(200), samples=8))
        cause = self.break_down(engine)
        with pytest.raises(EngineFailed) as error:
            within(60, "the requests of an engine that broke down", lambda: list(results))
        assert cause in str(error.value)
        with pytest.raises(EngineFailed) as error:
            engine.generate(_requests(SamplingParams(4)))
        assert cause in str(error.value)
        engine.stop()

    def test_a_stopped_engine_generates_nothing(self, start: Start) -> None:
        engine = start()
        engine.stop()
        with pytest.raises(IllegalOrder):
            engine.generate(_requests(SamplingParams(4)))


class _Weights(WeightReceiver):
    """A trainer's weights, five tensors at a time, in one buffer that every bucket overwrites."""

    def __init__(self, state: dict[str, torch.Tensor], version: int, lost: str = "") -> None:
        items = list(state.items())
        self.buckets = [items[start : start + 5] for start in range(0, len(items), 5)]
        self.manifest: WeightManifest = describe(self.buckets, version)
        self.lost = lost

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        flat = torch.empty(largest_bucket(self.manifest), dtype=torch.uint8)
        for bucket, entries in zip(self.buckets, self.manifest.buckets):
            pack(bucket, flat)
            yield [(name, tensor) for name, tensor in unpack(entries, flat) if name != self.lost]
            flat.fill_(255)


def _write_model(folder: Path, seed: int) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

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
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokens = Tokenizer(WordLevel({_text(token): token for token in range(VOCAB)}, _text(0)))
    tokens.decoder = Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokens).save_pretrained(folder)
    return folder


def _text(token_id: int) -> str:
    return f"[{token_id}]"


@cache
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
