import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.context import WorkerContext
from roll_core.errors import IllegalOrder, WeightSyncError
from roll_core.inference import EngineState
from roll_core.inference.hf import NEVER_UPDATED, HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform
from tests.inference.models import (
    ListReceiver,
    by_id,
    make_engine,
    prompts_of,
    reference,
    request,
    role_of,
    save_model,
)

Start = Callable[..., HfInferStrategy]
Folders = Callable[..., Path]
DECODERS = ["compact", "transformers"]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """As a trainer sends them: every name, tied ones under each of theirs."""
    return {name: tensor.clone() for name, tensor in reference(folder).state_dict().items()}


def greedy(engine: HfInferStrategy) -> list[tuple[int, ...]]:
    prompts = prompts_of(5, 17, 9)
    got = by_id(
        engine.generate([request(p, str(i), temperature=0.0, max_new_tokens=20) for i, p in enumerate(prompts)])
    )
    return [got[str(index)].token_ids for index in range(len(prompts))]


def transformers_greedy(folder: Path) -> list[tuple[int, ...]]:
    model, found = reference(folder), []
    for prompt in prompts_of(5, 17, 9):
        ids = torch.tensor([prompt])
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20, pad_token_id=0
        )
        found.append(tuple(whole[0, len(prompt) :].tolist()))
    return found


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_after_an_update_the_output_is_the_new_models(
    start: Start, folder_of: Folders, kind: str, decoder: str
) -> None:
    engine = start(kind, decoder=decoder)
    before = greedy(engine)
    assert before == transformers_greedy(folder_of(kind))
    new = folder_of(kind, 1)
    receiver = ListReceiver(weights_of(new), version=7)
    assert engine.update_weights(receiver) == receiver.manifest.digest
    after = greedy(engine)
    assert after == transformers_greedy(new)
    assert after != before
    (completion,) = engine.generate([request((1, 2), "r")])
    assert completion.weight_version == 7


def test_completions_name_the_folders_weights_until_an_update(start: Start) -> None:
    (completion,) = start().generate([request((1, 2), "r")])
    assert completion.weight_version == NEVER_UPDATED == -1


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_dummy_engine_generates_nothing_until_weights_have_come(
    start: Start, folder_of: Folders, decoder: str
) -> None:
    engine = start("qwen2", decoder=decoder, load_format="dummy")
    assert engine.lifecycle.state is EngineState.EMPTY
    with pytest.raises(IllegalOrder) as error:
        engine.generate([request((1, 2), "r")])
    assert str(error.value) == ("cannot generate while the engine is started without weights\n  allowed when: ready")
    engine.update_weights(ListReceiver(weights_of(folder_of("qwen2"))))
    assert greedy(engine) == transformers_greedy(folder_of("qwen2"))


def test_a_dummy_engine_needs_no_weight_files(folder_of: Folders, start: Start, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder_of("qwen3") / "config.json").read_bytes())
    engine = start(tmp_path, load_format="dummy")
    engine.update_weights(ListReceiver(weights_of(folder_of("qwen3"))))
    assert greedy(engine) == transformers_greedy(folder_of("qwen3"))


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> ListReceiver:
    weights = weights_of(folder)
    change(weights)
    return ListReceiver(weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing: model.norm.weight"),
        (lambda w: w.pop("lm_head.weight"), "missing: lm_head.weight"),
        (lambda w: w.update({"model.norm.bias": torch.zeros(2)}), "unknown: model.norm.bias"),
        (
            lambda w: w.update({"model.norm.weight": torch.zeros(3)}),
            "another shape: model.norm.weight (3,) instead of (48,)",
        ),
    ],
)
def test_other_weights_than_the_models_are_refused_and_the_old_ones_stay(
    start: Start, folder_of: Folders, change: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    engine = start("qwen2")
    before = greedy(engine)
    receiver = changed(folder_of("qwen2", 1), change)
    with pytest.raises(WeightSyncError) as error:
        engine.update_weights(receiver)
    assert str(error.value) == f"the weights of version 1 are not those of this model\n  {message}"
    assert greedy(engine) == before


class Faulty(ListReceiver):
    """Delivers something else than it announced."""

    def __init__(self, tensors: dict[str, torch.Tensor], fault: str) -> None:
        super().__init__(tensors)
        self.fault = fault

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        for number, bucket in enumerate(super().receive()):
            if self.fault == "a tensor is skipped" and number == 2:
                yield bucket[1:]
            elif self.fault == "the connection breaks" and number == 2:
                raise ConnectionError("the trainer is gone")
            else:
                yield bucket


@pytest.mark.parametrize("fault", ["a tensor is skipped", "the connection breaks"])
def test_an_update_that_breaks_off_leaves_an_engine_without_weights(
    start: Start, folder_of: Folders, fault: str
) -> None:
    engine, new = start("qwen2"), folder_of("qwen2", 1)
    with pytest.raises((WeightSyncError, ConnectionError)):
        engine.update_weights(Faulty(weights_of(new), fault))
    with pytest.raises(IllegalOrder, match="started without weights"):
        engine.generate([request((1, 2), "r")])
    engine.update_weights(ListReceiver(weights_of(new)))
    assert greedy(engine) == transformers_greedy(new)


def test_tied_weights_that_differ_are_refused(start: Start, folder_of: Folders) -> None:
    engine = start("qwen2")
    receiver = changed(folder_of("qwen2", 1), lambda w: w["lm_head.weight"].add_(1.0))
    with pytest.raises(WeightSyncError, match="are tied in this model, and the trainer sent different numbers"):
        engine.update_weights(receiver)


def test_weights_of_another_precision_are_converted(start: Start, folder_of: Folders, tmp_path: Path) -> None:
    engine, new = start("qwen3"), folder_of("qwen3", 1)
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in weights_of(new).items()}
    engine.update_weights(ListReceiver(rounded))
    model = reference(new).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert greedy(engine) == transformers_greedy(tmp_path)


def test_weights_do_not_change_under_running_requests(start: Start, folder_of: Folders) -> None:
    engine = start("qwen3")
    results = engine.generate([request((1, 2), str(n), max_new_tokens=250) for n in range(30)])
    receiver = ListReceiver(weights_of(folder_of("qwen3", 1)))
    for action in (lambda: engine.update_weights(receiver), engine.sleep):
        with pytest.raises(IllegalOrder, match=r"while 30 requests are running.*\n.*abort first"):
            action()
    engine.abort()
    engine.update_weights(receiver)
    assert {completion.finish_reason for completion in results} == {"abort"}
    assert greedy(engine) == transformers_greedy(folder_of("qwen3", 1))


class Slow(ListReceiver):
    """Stops in the middle until it is let go."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__(tensors)
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        for bucket in super().receive():
            self.begun.set()
            assert self.may_go_on.wait(60)
            yield bucket


def test_requests_that_come_during_an_update_wait_for_the_new_weights(start: Start, folder_of: Folders) -> None:
    engine, new = start("qwen3"), folder_of("qwen3", 1)
    receiver, found = Slow(weights_of(new)), []
    update = threading.Thread(target=engine.update_weights, args=(receiver,))
    update.start()
    assert receiver.begun.wait(60)
    generation = threading.Thread(target=lambda: found.extend(greedy(engine)))
    generation.start()
    with pytest.raises(IllegalOrder, match="is being changed by another call"):
        engine.update_weights(receiver)
    receiver.may_go_on.set()
    update.join(60)
    generation.join(60)
    assert found == transformers_greedy(new)


@pytest.mark.parametrize("decoder", DECODERS)
def test_wake_restores_what_sleep_put_away(start: Start, folder_of: Folders, decoder: str) -> None:
    engine = start("qwen3", decoder=decoder)
    before = greedy(engine)
    engine.sleep()
    with pytest.raises(IllegalOrder) as error:
        engine.generate([request((1, 2), "r")])
    assert str(error.value) == "cannot generate while the engine is asleep\n  allowed when: ready"
    engine.wake()
    assert greedy(engine) == before
    engine.update_weights(ListReceiver(weights_of(folder_of("qwen3", 1))))
    assert greedy(engine) == transformers_greedy(folder_of("qwen3", 1))


def test_sleep_gives_the_cache_back(start: Start) -> None:
    engine = start()
    greedy(engine)
    assert engine.engine.decoder.cache.memory.numel() > 0  # type: ignore[attr-defined]
    engine.sleep()
    assert engine.engine.decoder.cache.memory.numel() == 0  # type: ignore[attr-defined]


def test_an_engine_without_weights_has_none_after_its_sleep_either(start: Start) -> None:
    engine = start(load_format="dummy")
    engine.sleep()
    engine.wake()
    assert engine.lifecycle.state is EngineState.EMPTY


ORDERS: dict[str, dict[str, bool]] = {
    # what is called, and whether it is allowed, for each state
    "new": {"start": True, "generate": False, "abort": False, "update": False, "sleep": False, "wake": False},
    "ready": {"start": False, "generate": True, "abort": True, "update": True, "sleep": True, "wake": False},
    "empty": {"start": False, "generate": False, "abort": True, "update": True, "sleep": True, "wake": False},
    "asleep": {"start": False, "generate": False, "abort": True, "update": False, "sleep": False, "wake": True},
    "stopped": {"start": False, "generate": False, "abort": False, "update": False, "sleep": False, "wake": False},
}


def engine_in(state: str, folder: Path) -> HfInferStrategy:
    engine = make_engine(folder, load_format="dummy" if state == "empty" else "auto")
    if state != "new":
        engine.start()
    if state == "asleep":
        engine.sleep()
    if state == "stopped":
        engine.stop()
    return engine


@pytest.mark.parametrize(
    ("state", "call", "is_allowed"),
    [(state, call, allowed) for state, calls in ORDERS.items() for call, allowed in calls.items()],
)
def test_calls_out_of_order_are_refused(folder_of: Folders, state: str, call: str, is_allowed: bool) -> None:
    engine = engine_in(state, folder_of("qwen3"))
    actions: dict[str, Callable[[], Any]] = {
        "start": engine.start,
        "generate": lambda: list(engine.generate([request((1, 2), "r")])),
        "abort": engine.abort,
        "update": lambda: engine.update_weights(ListReceiver(weights_of(folder_of("qwen3")))),
        "sleep": engine.sleep,
        "wake": engine.wake,
    }
    try:
        if is_allowed:
            actions[call]()
        else:
            with pytest.raises(IllegalOrder):
                actions[call]()
    finally:
        engine.stop()
        engine.stop()
    assert engine.lifecycle.state is EngineState.STOPPED


def test_stop_aborts_what_runs_and_ends_the_thread(folder_of: Folders) -> None:
    engine = make_engine(folder_of("qwen3"))
    engine.start()
    results = engine.generate([request((1, 2), str(n), max_new_tokens=250) for n in range(20)])
    engine.stop()
    assert {completion.finish_reason for completion in results} == {"abort"}
    assert not [thread for thread in threading.enumerate() if thread is engine.engine._thread]


def test_the_generation_configs_end_tokens_end_every_completion(start: Start, tmp_path: Path) -> None:
    folder = save_model(tmp_path, "qwen3")
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    assert start(folder).model.eos_ids == (5, 9)
    engine = start(save_model(tmp_path / "other", "qwen3", eos_token_id=11))
    assert engine.model.eos_ids == (11,)
    requests = [request((1, 2, 3), str(n), seed=n, max_new_tokens=200) for n in range(40)]
    for completion in engine.generate(requests):
        assert (11 in completion.token_ids) == (completion.finish_reason == "stop")
        assert 11 not in completion.token_ids[:-1]


def problems(folder: Path, **changes: Any) -> list[str]:
    dtype = changes.pop("dtype", "fp32")
    strategy_config = changes.pop("strategy_config", {})
    role = role_of(folder, dtype=dtype, **strategy_config).model_copy(update=changes)
    return [str(problem) for problem in HfInferStrategy.problems(role, CpuPlatform())]


def test_what_cannot_work_is_said_before_anything_starts(tmp_path: Path) -> None:
    assert problems(tmp_path) == []
    assert problems(tmp_path, dtype="bf16") == []
    assert problems(tmp_path, dtype="fp16") == [
        "model_args.dtype: platform 'cpu' does not compute in float16\n    given: 'fp16'\n    try:   fp32"
    ]
    assert problems(tmp_path, strategy_config={"max_runing_requests": 3}) == [
        "strategy_args.strategy_config.max_runing_requests: Extra inputs are not permitted\n    given: 3"
    ]
    assert problems(tmp_path, strategy_config={"decoder": "fast"})[0].startswith(
        "strategy_args.strategy_config.decoder: Input should be 'auto', 'compact' or 'transformers'"
    )
    assert problems(tmp_path, num_gpus_per_worker=2) == [
        "num_gpus_per_worker: an hf_infer engine uses one device\n    given: 2\n    try:   num_gpus_per_worker: 1"
    ]


def test_a_config_is_read_when_the_strategy_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_running_requests"):
        HfInferStrategy(role_of(tmp_path, max_running_requests=0), CpuPlatform(), WorkerContext("actor_infer"))
