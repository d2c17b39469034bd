import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference import Completion, GenerationRequest
from roll_core.inference.decoder import Decoder, PrefilledPrompt
from roll_core.inference.engine import Engine, Limits
from roll_core.inference.hf import HfInferStrategy
from tests.inference.models import by_id, prompts_of, request

Start = Callable[..., HfInferStrategy]


def rollout(num_prompts: int, num_samples: int, **params: object) -> list[GenerationRequest]:
    """Several samples for each prompt, of many lengths."""
    prompts = prompts_of(*[3 + 7 * index % 40 for index in range(num_prompts)])
    return [
        request(
            prompt,
            f"{index}/{sample}",
            seed=100 * index + sample,
            group=f"g{index}",
            **({"max_new_tokens": 2 + (5 * index + 11 * sample) % 30} | params),
        )
        for index, prompt in enumerate(prompts)
        for sample in range(num_samples)
    ]


class Watched:
    """Counts what an engine asks of its decoder."""

    def __init__(self, engine: HfInferStrategy) -> None:
        self.prompts_read: list[tuple[int, ...]] = []
        self.passes: list[int] = []
        self.rows: list[int] = []
        self.allowed = threading.Event()
        self.allowed.set()
        decoder = engine.engine.decoder
        prefill, step = decoder.prefill, decoder.step

        def watched_prefill(prompts: Sequence[Sequence[int]]) -> list[PrefilledPrompt]:
            self.prompts_read += map(tuple, prompts)
            self.passes.append(len(prompts) * max(map(len, prompts)))
            return prefill(prompts)

        def watched_step(tokens: torch.Tensor) -> torch.Tensor:
            assert self.allowed.wait(60)
            self.rows.append(len(tokens))
            return step(tokens)

        decoder.prefill, decoder.step = watched_prefill, watched_step  # type: ignore[method-assign]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("decoder", ["compact", "transformers"])
def test_the_same_requests_give_the_same_bits(start: Start, decoder: str) -> None:
    first, second = start(decoder=decoder, max_running_requests=10), start(decoder=decoder, max_running_requests=10)
    requests = rollout(9, 4, temperature=0.9)
    expected = by_id(first.generate(requests))
    # What the engine did before, longer texts included, must leave no trace.
    by_id(second.generate([request(prompt, "before", max_new_tokens=150) for prompt in prompts_of(60)]))
    by_id(second.generate(rollout(3, 7)))
    assert by_id(second.generate(requests)) == expected
    assert by_id(second.generate(requests)) == expected


@pytest.mark.parametrize("decoder", ["compact", "transformers"])
def test_seeds_repeat_whatever_runs_beside_them(start: Start, decoder: str) -> None:
    engine = start(decoder=decoder, max_running_requests=8)
    requests = rollout(6, 5, top_k=30)
    together = by_id(engine.generate(requests))
    for one in requests[::4]:
        alone = by_id(engine.generate([one]))[one.request_id]
        assert alone.token_ids == together[one.request_id].token_ids
        assert alone.log_probs == pytest.approx(together[one.request_id].log_probs, abs=1e-5)


def test_samples_of_a_prompt_differ(start: Start) -> None:
    completions = by_id(start().generate(rollout(3, 8, max_new_tokens=12)))
    for group in range(3):
        assert len({completions[f"{group}/{sample}"].token_ids for sample in range(8)}) == 8


@pytest.mark.parametrize("decoder", ["compact", "transformers"])
@pytest.mark.parametrize("max_running_requests", [1, 3, 32, 256])
def test_each_prompt_of_a_group_is_read_once(start: Start, decoder: str, max_running_requests: int) -> None:
    engine = start(decoder=decoder, max_running_requests=max_running_requests)
    watched, requests = Watched(engine), rollout(7, 4)
    assert len(by_id(engine.generate(requests))) == 28
    prompts = [one.prompt_ids for one in requests[::4]]
    assert sorted(watched.prompts_read) == sorted(prompts)


def test_a_group_with_different_prompts_is_read_prompt_by_prompt(start: Start) -> None:
    engine, prompts = start(), prompts_of(5, 6)
    mixed = by_id(
        engine.generate([request(p, str(i), group="g", temperature=0.0) for i, p in enumerate([*prompts, *prompts])])
    )
    alone = [by_id(engine.generate([request(p, "r", temperature=0.0)]))["r"].token_ids for p in prompts]
    assert [mixed[str(index)].token_ids for index in range(4)] == [*alone, *alone]


def test_prompts_are_read_in_passes_of_bounded_size(start: Start) -> None:
    engine = start(max_batch_tokens=50)
    watched, requests = Watched(engine), rollout(12, 1)
    assert len(by_id(engine.generate(requests))) == 12
    assert len(watched.prompts_read) == 12
    assert max(watched.passes) <= 50
    assert len(watched.passes) < 12


def test_new_requests_enter_while_others_run_and_finished_ones_leave(start: Start) -> None:
    engine = start(max_running_requests=4)
    watched = Watched(engine)
    lengths = [40, 5, 5, 5, 5, 5, 20, 20]
    requests = [request(p, str(n), max_new_tokens=lengths[n]) for n, p in enumerate(prompts_of(*[4] * len(lengths)))]
    order = [completion.request_id for completion in engine.generate(requests)]
    assert order == ["1", "2", "3", "4", "5", "6", "7", "0"]
    # The first token of each comes from its prompt; every other one takes a step of its row, and none is wasted.
    assert sum(watched.rows) == sum(lengths) - len(lengths)
    assert max(watched.rows) == 4
    assert len(watched.rows) < 45


def test_the_cache_is_never_larger_than_its_bound(start: Start) -> None:
    engine = start(max_cache_tokens=100)
    watched = Watched(engine)
    lengths = [10, 10, 40, 10, 10, 45, 10]
    requests = [request((1, 2, 3, 4), str(n), max_new_tokens=length) for n, length in enumerate(lengths)]
    assert len(by_id(engine.generate(requests))) == 7
    assert max(watched.rows) <= 7
    data_tokens = [rows for rows in watched.rows if rows > 2]
    assert data_tokens == []
    assert watched.rows[0] == 2


def test_a_request_beyond_the_bounds_is_refused_and_none_of_its_call_runs(start: Start) -> None:
    engine = start(max_cache_tokens=100)
    for bad, message in [
        (
            request((1,) * 90, "bad", max_new_tokens=20),
            "prompt of 90 and max_new_tokens 20 make 110 tokens; the cache holds at most 100",
        ),
        (
            request((1,) * 250, "bad", max_new_tokens=7),
            "prompt of 250 and max_new_tokens 7 make 257 tokens; the model reads at most 256",
        ),
        (request((5, 97, 98), "bad"), "prompt token 97 is outside the vocabulary (0..96)"),
    ]:
        with pytest.raises(BadRequest) as error:
            engine.generate([request((1, 2), "good"), bad])
        assert str(error.value) == f"request 'bad': {message}"
    with pytest.raises(BadRequest, match="request 'bad' has an empty prompt"):
        engine.generate([request((), "bad")])
    with pytest.raises(BadRequest, match="unique among running requests: r"):
        engine.generate([request((1,), "r"), request((2,), "r")])
    assert engine.abort() == []


def test_one_new_token_is_enough(start: Start) -> None:
    engine = start()
    watched = Watched(engine)
    completions = by_id(engine.generate(rollout(3, 2, max_new_tokens=1)))
    assert [len(c.token_ids) for c in completions.values()] == [1] * 6
    assert {c.finish_reason for c in completions.values()} == {"length"}
    assert watched.rows == []


@pytest.mark.parametrize("decoder", ["compact", "transformers"])
def test_completions_end_at_stop_tokens_which_they_keep(start: Start, decoder: str) -> None:
    engine = start(decoder=decoder)
    free = by_id(engine.generate(rollout(5, 1, max_new_tokens=30)))
    ends = {name: completion.token_ids[6] for name, completion in free.items()}
    requests = [
        request(
            one.prompt_ids, one.request_id, seed=one.seed, max_new_tokens=30, stop_token_ids=(ends[one.request_id],)
        )
        for one in rollout(5, 1)
    ]
    for name, completion in by_id(engine.generate(requests)).items():
        length = free[name].token_ids.index(ends[name]) + 1
        assert completion.token_ids == free[name].token_ids[:length]
        assert completion.finish_reason == "stop"


def test_aborted_requests_come_back_at_once_with_what_they_have(start: Start) -> None:
    engine = start(max_running_requests=4)
    watched = Watched(engine)
    watched.allowed.clear()
    requests = [request(p, str(n), max_new_tokens=100) for n, p in enumerate(prompts_of(*[5] * 6))]
    results = engine.generate(requests)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, results)
        wait_until(lambda: len(watched.prompts_read) == 4)
        # The first token of those that run is there; the next one is being computed.
        wait_until(lambda: len(engine.engine._requests.named(["3"])[0].token_ids) == 1)
        assert engine.abort(["1", "5", "unknown", "1"]) == ["1", "5"]
        assert first.result(60).request_id in {"1", "5"}
        assert engine.abort(["1"]) == []
        watched.allowed.set()
        rest = list(results)
    aborted = {c.request_id: c for c in rest if c.finish_reason == "abort"} | {
        first.result().request_id: first.result()
    }
    assert sorted(aborted) == ["1", "5"]
    assert len(aborted["1"].token_ids) == len(aborted["1"].log_probs) == 1
    assert aborted["5"].token_ids == ()
    assert sorted(c.request_id for c in rest if c.finish_reason == "length") == ["0", "2", "3", "4"]


def test_abort_without_ids_ends_everything(start: Start) -> None:
    engine = start(max_running_requests=3)
    Watched(engine).allowed.clear()
    results = engine.generate(rollout(4, 3, max_new_tokens=30))
    assert len(engine.abort()) == 12
    assert {c.finish_reason for c in results} == {"abort"}
    assert engine.abort() == []


def test_what_was_aborted_does_not_change_what_runs_on(start: Start) -> None:
    engine = start()
    watched, requests = Watched(engine), rollout(6, 3, max_new_tokens=25)
    expected = by_id(engine.generate(requests))
    watched.rows.clear()
    results = engine.generate(requests)
    wait_until(lambda: len(watched.rows) > 3)
    aborted = set(engine.abort([one.request_id for one in requests[::2]]))
    for name, completion in by_id(results).items():
        length = len(completion.token_ids)
        assert completion.token_ids == expected[name].token_ids[:length]
        assert (completion.finish_reason == "abort") == (name in aborted)
        assert name in aborted or length == 25


def test_results_that_nobody_waits_for_are_aborted(start: Start) -> None:
    engine = start()
    results = engine.generate([request((1, 2), str(n), max_new_tokens=2 + 200 * n) for n in range(2)])
    assert next(results).request_id == "0"
    results.close()  # type: ignore[attr-defined]
    wait_until(lambda: len(engine.engine._requests) == 0)


def test_two_hundred_concurrent_calls_complete(start: Start) -> None:
    engine = start(max_running_requests=50)
    requests = rollout(50, 4)
    expected = by_id(engine.generate(requests))

    def call(one: GenerationRequest) -> Completion:
        (completion,) = engine.generate([one])
        return completion

    with ThreadPoolExecutor(200) as pool:
        got = list(pool.map(call, requests, timeout=120))
    assert [completion.request_id for completion in got] == [one.request_id for one in requests]
    assert [c.token_ids for c in got] == [expected[c.request_id].token_ids for c in got]


def test_an_id_that_runs_in_another_call_is_refused(start: Start) -> None:
    engine = start()
    Watched(engine).allowed.clear()
    results = engine.generate([request((1, 2), "r", max_new_tokens=50)])
    with pytest.raises(BadRequest) as error:
        engine.generate([request((1, 2), "r")])
    assert str(error.value) == "request ids must be unique among running requests: r"
    engine.abort()
    assert len(list(results)) == 1


def test_a_change_that_waits_for_an_engine_that_is_being_stopped_does_not_hang(start: Start) -> None:
    engine = start()
    watched = Watched(engine)
    watched.allowed.clear()
    results = engine.generate([request((1, 2), "r", max_new_tokens=50)])
    wait_until(lambda: len(watched.prompts_read) == 1)
    engine.abort()
    with ThreadPoolExecutor(2) as pool:
        sleeping = pool.submit(engine.sleep)
        wait_until(lambda: engine.engine._requests.is_paused)
        stopping = pool.submit(engine.engine.stop)
        wait_until(lambda: engine.engine._requests.over is not None)
        watched.allowed.set()
        with pytest.raises(IllegalOrder, match="has been stopped"):
            sleeping.result(60)
        stopping.result(60)
    assert [completion.finish_reason for completion in results] == ["abort"]


class Broken(Decoder):
    """Fails at the third step."""

    vocab_size = 10

    def __init__(self) -> None:
        self.num_rows = self.num_steps = 0

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[PrefilledPrompt]:
        return [PrefilledPrompt(torch.zeros(10), (), len(prompt)) for prompt in prompts]

    def enter(self, prompts: Sequence[PrefilledPrompt]) -> None:
        self.num_rows += len(prompts)

    def step(self, tokens_N: torch.Tensor) -> torch.Tensor:
        self.num_steps += 1
        if self.num_steps == 3:
            raise RuntimeError("the device fell off")
        return torch.zeros(self.num_rows, 10)

    def leave(self, compaction: object) -> None:
        raise AssertionError("nobody leaves")

    def clear(self) -> None:
        self.num_rows = 0

    def free(self) -> None:
        self.num_rows = 0


def test_a_failure_reaches_every_caller_with_its_traceback_and_nobody_hangs() -> None:
    engine = Engine(Broken(), Limits(max_running_requests=3), torch.device("cpu"))
    calls = [engine.submit([request((1, 2), f"{n}", max_new_tokens=50)]) for n in range(8)]

    def failure(number: int) -> str:
        with pytest.raises(EngineFailed) as error:
            list(calls[number].results())
        return str(error.value)

    with ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(failure, range(8), timeout=60))
    assert len(set(messages)) == 1
    assert messages[0].startswith("the engine broke down and must be started again\nTraceback (most recent call last):")
    assert messages[0].endswith("RuntimeError: the device fell off")
    assert "in step" in messages[0]
    with pytest.raises(EngineFailed, match="the device fell off"):
        engine.submit([request((1, 2), "later")])
    with pytest.raises(EngineFailed, match="the device fell off"), engine.paused("update weights"):
        pass
    assert engine.abort() == []
    engine.stop()
