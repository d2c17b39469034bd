"""The parts of vllm that need no vLLM: weights on their way to workers, the sampler's hooks, what can be asked."""

import asyncio
import io
import mmap
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from PIL import Image
from torch import nn

from roll_core.data.vision import PromptImages
from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference.relay import Inlet, Outlet, WorkerGone
from roll_core.inference.vllm import engine as vllm_engine
from roll_core.inference.vllm.engine import AsyncEngine
from roll_core.inference.vllm.log_probs import ScaledLogProbs
from roll_core.inference.vllm.requests import RequestRules, check_prompt, prompt_of
from roll_core.weights.packing import unpack
from tests.inference.models import ListReceiver, request

RULES = RequestRules(vocab_size=97, max_length=64, has_tokenizer=False, has_plain_sampling_only=False)


def fine() -> None:
    """Nothing has failed."""


def take(address: str, found: dict[str, torch.Tensor], *, stop_after: int | None = None) -> None:
    with Inlet(address) as inlet:
        found["version"] = torch.tensor(inlet.version)
        for number, (path, entries) in enumerate(inlet.buckets()):
            if number == stop_after:
                return
            with Path(path).open("r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            inlet.opened()
            found |= unpack(entries, torch.frombuffer(mapped, dtype=torch.uint8))


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    return {f"w{i}": torch.randn(3 + i, 5) for i in range(8)} | {"half": torch.ones(7, dtype=torch.bfloat16)}


def test_every_worker_gets_every_bucket_and_nothing_is_left_behind(weights: dict[str, torch.Tensor]) -> None:
    found: list[dict[str, torch.Tensor]] = [{}, {}]
    with Outlet(2, fine, timeout_s=20) as outlet:
        workers = [threading.Thread(target=take, args=(outlet.address, one)) for one in found]
        for worker in workers:
            worker.start()
        outlet.send(ListReceiver(weights, version=5))
        for worker in workers:
            worker.join(20)
        folder = Path(outlet.address).parent
        assert [path.name for path in folder.iterdir()] == ["socket"]
    assert not folder.exists()
    for one in found:
        assert int(one.pop("version")) == 5
        assert one.keys() == weights.keys()
        assert all(torch.equal(one[name], tensor) for name, tensor in weights.items())


def test_a_worker_that_ends_early_ends_the_sending(weights: dict[str, torch.Tensor]) -> None:
    with Outlet(1, fine, timeout_s=20) as outlet:
        worker = threading.Thread(target=take, args=(outlet.address, {}), kwargs={"stop_after": 1})
        worker.start()
        with pytest.raises(WorkerGone):
            outlet.send(ListReceiver(weights))
        worker.join(20)


def test_workers_that_fail_before_they_listen_are_not_waited_for(weights: dict[str, torch.Tensor]) -> None:
    def check() -> None:
        raise EngineFailed("the engine died")

    with Outlet(1, check, timeout_s=60) as outlet, pytest.raises(EngineFailed, match="the engine died"):
        outlet.send(ListReceiver(weights))


def test_a_sender_that_breaks_off_ends_the_workers_loading(weights: dict[str, torch.Tensor]) -> None:
    class Broken(ListReceiver):
        def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
            yield self.buckets[0]
            raise ConnectionError("the trainer is gone")

    found: dict[str, torch.Tensor] = {}
    with Outlet(1, fine, timeout_s=20) as outlet:
        worker = threading.Thread(target=take, args=(outlet.address, found))
        worker.start()
        with pytest.raises(ConnectionError, match="the trainer is gone"):
            outlet.send(Broken(weights))
    worker.join(20)
    assert not worker.is_alive()
    assert found.keys() == {"version", "w0", "w1", "w2"}


class Tensors(NamedTuple):
    token_ids: torch.Tensor
    logprobs: torch.Tensor


class Sampler(nn.Module):
    """Takes token 1 in every row, spoils the logits as vLLM's does, and reports nonsense."""

    logprobs_mode = "processed_logprobs"

    def forward(self, logits: torch.Tensor, sampling_metadata: Any) -> Any:
        logits.fill_(0.0)
        rows = logits.shape[0]
        tensors = None
        if sampling_metadata.max_num_logprobs is not None:
            tensors = Tensors(torch.ones(rows, 1, dtype=torch.int32), torch.full((rows, 2), 9.0))
        return SimpleNamespace(sampled_token_ids=torch.ones(rows, 1, dtype=torch.int32), logprobs_tensors=tensors)


def sampling(**changes: Any) -> Any:
    plain = {"top_k": None, "top_p": None, "no_penalties": True, "max_num_logprobs": 0, "temperature": None}
    return SimpleNamespace(**(plain | changes))


RESTRICTIONS: list[dict[str, Any]] = [
    {"top_k": torch.tensor([1, 1])},
    {"top_p": torch.tensor([0.5, 0.5])},
    {"no_penalties": False},
    {"logitsprocs": SimpleNamespace(non_argmax_invariant=[object(), SimpleNamespace(biases={0: {2: -100.0}})])},
]


@pytest.mark.parametrize("restriction", RESTRICTIONS)
@pytest.mark.parametrize("by_name", [False, True])
def test_restricted_sampling_reports_log_probs_at_the_temperature_alone(
    restriction: dict[str, Any], by_name: bool
) -> None:
    sampler = Sampler()
    ScaledLogProbs(sampler)
    logits = torch.randn(2, 6)
    expected = [(logits[0] / 0.5).log_softmax(0)[1], logits[1].log_softmax(0)[1]]
    asked = sampling(**restriction, temperature=torch.tensor([0.5, 0.0]))
    call: Callable[..., Any] = sampler
    output = call(logits=logits, sampling_metadata=asked) if by_name else call(logits, asked)
    assert output.logprobs_tensors.logprobs[:, 0].tolist() == pytest.approx(
        [float(value) for value in expected], abs=1e-5
    )
    assert output.logprobs_tensors.logprobs[:, 1].tolist() == [9.0, 9.0]


def test_a_sampler_that_ignores_the_mode_it_is_given_is_corrected_always() -> None:
    sampler = Sampler()
    sampler.logprobs_mode = "raw_logprobs"
    ScaledLogProbs(sampler)
    logits = torch.randn(2, 6)
    expected = (logits / 0.5).log_softmax(1)[:, 1]
    output = sampler(logits, sampling(temperature=torch.tensor([0.5, 0.5])))
    assert output.logprobs_tensors.logprobs[:, 0].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_plain_sampling_and_sampling_without_log_probs_are_left_alone() -> None:
    sampler = Sampler()
    ScaledLogProbs(sampler)
    assert sampler(torch.randn(2, 6), sampling()).logprobs_tensors.logprobs.unique().tolist() == [9.0]
    assert sampler(torch.randn(2, 6), sampling(top_k=1, max_num_logprobs=None)).logprobs_tensors is None


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ((), {}, "request 'r' has an empty prompt"),
        ((1, 97), {}, "request 'r': prompt token 97 is outside the vocabulary (0..96)"),
        (
            (1,) * 60,
            {},
            "request 'r': prompt of 60 and max_new_tokens 8 make 68 tokens; the engine reads at most 64",
        ),
        ((1,), {"stop": ("x",)}, "request 'r' has stop strings, and the model's folder has no tokenizer"),
        (
            (1,),
            {"temperature": 0.001},
            "request 'r': temperature is 0.001\n  allowed by vLLM: 0, or 0.01 and more",
        ),
        ((1,), {"top_p": 0.0}, "request 'r': top_p is 0.0\n  allowed: above 0 and at most 1 (every token)"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(prompt: tuple[int, ...], params: Any, message: str) -> None:
    with pytest.raises(BadRequest) as error:
        RULES.check(request(prompt, **params))
    assert str(error.value) == message


def test_a_prompt_with_images_is_given_in_short_and_must_come_back_as_the_trainer_reads_it() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (4, 2), "red").save(stream, "PNG")
    images = PromptImages((stream.getvalue(),), (5, 9, 6), 5)
    asked = replace(request((5, 9, 9, 9, 6, 7, 8)), images=images)
    prompt = prompt_of(asked)
    assert prompt["prompt_token_ids"] == [5, 9, 6, 7, 8]
    assert [image.size for image in prompt["multi_modal_data"]["image"]] == [(4, 2)]
    check_prompt(asked, asked.prompt_ids)
    with pytest.raises(EngineFailed, match="vLLM made 5 tokens of the prompt of request 'r', and the trainer reads 7"):
        check_prompt(asked, [5, 9, 6, 7, 8])
    assert prompt_of(request((1, 2))) == {"prompt_token_ids": [1, 2]}


@pytest.mark.parametrize(
    "params", [{"top_k": 3}, {"top_p": 0.9}, {"repetition_penalty": 1.2}, {"excluded_token_ids": (3,)}]
)
def test_without_the_hooks_only_plain_sampling_is_served(params: Any) -> None:
    rules = RequestRules(97, 64, has_tokenizer=False, has_plain_sampling_only=True)
    rules.check(request((1, 2), temperature=0.7))
    with pytest.raises(BadRequest, match="log-probs are right only without top_k, top_p and penalties"):
        rules.check(request((1, 2), **params))


LEAF = """
import os, sys, time
from roll_core.inference.vllm.orphans import end_with
end_with(int(sys.argv[1]))
print(os.getppid(), os.getpid(), flush=True)
time.sleep(60)
"""
SPAWN = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
OWN = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:], str(os.getpid())])"


def test_all_between_the_owner_and_a_worker_end_when_the_owner_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWN, SPAWN, LEAF], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    below = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
    assert len(below) == 2 and all(process.is_running() for process in below)
    owner.kill()
    owner.wait()
    _, alive = psutil.wait_procs(below, timeout=20)
    assert alive == []


class Forgetful:
    """An engine of vLLM that knows requests by other names than ours: an abort finds none of them."""

    errored = False

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> Any:
        await asyncio.sleep(3600)
        yield SimpleNamespace(outputs=[])

    async def abort(self, ids: list[str]) -> None:
        return None

    def shutdown(self) -> None:
        return None


def test_an_abort_that_the_engine_does_not_heed_ends_its_requests_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(arguments: Any) -> Forgetful:
        return Forgetful()

    monkeypatch.setattr(vllm_engine, "_start", started)
    monkeypatch.setattr(vllm_engine, "sampling_of", lambda *_: None)
    monkeypatch.setattr(vllm_engine, "ABORT_DEADLINE_S", 0.2)
    engine = AsyncEngine({}, (), "engine-0", timeout_s=5)
    requests = [request([1], f"r{number}") for number in range(8)]
    call = engine.submit(requests, fine)
    assert sorted(engine.abort()) == [one.request_id for one in requests]
    completions = list(call.results())
    assert [(one.finish_reason, one.token_ids) for one in completions] == [("abort", ())] * 8
    engine.stop()


class Dying(Forgetful):
    """An engine of vLLM that dies once `has_died` is set."""

    def __init__(self) -> None:
        self.has_died = asyncio.Event()

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> Any:
        await self.has_died.wait()
        self.errored = True
        raise RuntimeError("the pipe is closed")
        yield

    async def abort(self, ids: list[str]) -> None:
        if self.errored:
            raise RuntimeError("the engine is dead")


def test_an_engine_that_dies_fails_what_runs_and_what_comes_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying()

    async def started(arguments: Any) -> Dying:
        return dying

    monkeypatch.setattr(vllm_engine, "_start", started)
    monkeypatch.setattr(vllm_engine, "sampling_of", lambda *_: None)
    engine = AsyncEngine({}, (), "engine-0", timeout_s=5)
    calls = [engine.submit([request([1], name)], fine) for name in ("a", "b")]
    engine._loop.call_soon_threadsafe(dying.has_died.set)
    died = (
        "the engine died and must be started again\n  cause: RuntimeError: the pipe is closed"
        "\n  vLLM's own report: in the log of engine-0"
    )
    for call in calls:
        with pytest.raises(EngineFailed) as error:
            list(call.results())
        assert str(error.value) == died
    with pytest.raises(EngineFailed) as error:
        engine.submit([request([1], "c")], fine)
    assert str(error.value) == died
    with pytest.raises(EngineFailed), engine.paused("update weights"):
        pass
    assert engine.abort() == []
    engine.stop()
    engine.stop()


def test_a_request_that_fails_by_itself_leaves_the_engine_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(Forgetful):
        async def generate(self, prompt: Any, sampling: Any, request_id: str) -> Any:
            if request_id == "bad":
                raise ValueError("it is too hot")
            await asyncio.sleep(0)
            output = SimpleNamespace(finish_reason="length", token_ids=[], logprobs=None)
            yield SimpleNamespace(outputs=[output], prompt_token_ids=prompt["prompt_token_ids"])

    async def started(arguments: Any) -> Picky:
        return Picky()

    monkeypatch.setattr(vllm_engine, "_start", started)
    monkeypatch.setattr(vllm_engine, "sampling_of", lambda *_: None)
    engine = AsyncEngine({}, (), "engine-0", timeout_s=5)
    with pytest.raises(EngineFailed, match="request 'bad' failed: ValueError: it is too hot"):
        list(engine.submit([request([1], "bad")], fine).results())
    assert [one.finish_reason for one in engine.submit([request([1], "good")], fine).results()] == ["length"]
    engine.stop()
    with pytest.raises(IllegalOrder, match="has been stopped"):
        engine.submit([request([1], "late")], fine)
