"""Episodes with real engines and environments: what is trained on is what the engines said, token for token."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest
import torch

from roll_core.cluster.calls import Call
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.rollout.env_async_collector import AsyncEnvCollector
from roll_core.rollout.env_batch import to_batch
from roll_core.rollout.env_episode import Style
from roll_core.rollout.env_flow import EpisodeFlow, GroupShape
from roll_core.rollout.env_groups import GroupOrder
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.environments import Kind
from tests.inference.models import make_engine, reference, save_model
from tests.rollout.dialogues import byte_dialogue
from tests.rollout.groups import Group

DIALOGUE = byte_dialogue()


class Stream:
    """What a call of an engine yields, from a thread of its own."""

    def __init__(self, engine: HfInferStrategy, requests: Sequence[GenerationRequest]) -> None:
        self.items: SimpleQueue[Completion | BaseException | None] = SimpleQueue()
        self.waiting: list[Completion | BaseException | None] = []
        self.thread = threading.Thread(target=self._run, args=(engine, requests), daemon=True)
        self.thread.start()

    def _run(self, engine: HfInferStrategy, requests: Sequence[GenerationRequest]) -> None:
        try:
            for completion in engine.generate(requests):
                self.items.put(completion)
            self.items.put(None)
        except BaseException as error:
            self.items.put(error)

    def is_ready(self) -> bool:
        if not self.waiting:
            try:
                self.waiting.append(self.items.get_nowait())
            except Empty:
                return False
        return True


class Engines(Group):
    def __init__(self, engines: Sequence[HfInferStrategy]) -> None:
        super().__init__("actor_infer", len(engines))
        self.engines = engines

    def generate(self, rank: int, requests: Sequence[GenerationRequest], interval: float) -> Stream:
        return Stream(self.engines[rank], requests)

    def abort(self, rank: int, ids: Sequence[str] | None) -> list[str]:
        return self.engines[rank].abort(ids)


class Waiter:
    def poll(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        ready = [call for call in calls if call.method != "generate" or call.ref.is_ready()]
        if not ready:
            time.sleep(0.001)
        return ready

    def wait(self, calls: Sequence[Call]) -> list[Any]:
        return [call.ref for call in calls]

    def take(self, call: Call) -> list[Completion] | None:
        item = call.ref.waiting.pop()
        if isinstance(item, BaseException):
            raise item
        return None if item is None else [item]


def interrupt(flow: EpisodeFlow) -> None:
    """Pause the flow in the midst of an answer."""
    before = flow.resumed
    for attempt in range(100):
        with flow.changed:
            flow.room = 1 + sum(group.is_done for group in flow.open_rollouts())
            flow.begin()
            flow.wait_for(lambda: bool(flow._asked))
        # Where a machine is busy, an engine takes a while from being asked to its first token.
        time.sleep(0.002 * (attempt % 20))
        with flow.paused():
            if flow.resumed > before:
                return
    raise AssertionError("no answer was running in any of a hundred pauses")


@pytest.mark.parametrize("is_stepwise", [False, True])
def test_every_row_has_the_log_probs_of_the_weights_over_aborts_and_resumed_answers(
    is_stepwise: bool, tmp_path: Path
) -> None:
    folder = save_model(tmp_path / "model", "qwen2", vocab_size=len(DIALOGUE.tokenizer), max_position_embeddings=1024)
    local = [make_engine(folder) for _ in range(2)]
    for engine in local:
        engine.start()
    engines: Any = Engines(local)
    waiter: Any = Waiter()
    flow = EpisodeFlow(
        engines,
        waiter,
        EnvPool({"A": Kind("frozen_lake", {"is_slippery": False, "max_steps": 4})}, 1),
        DIALOGUE,
        {"A": Style("A", is_stepwise, max_steps=4, max_tokens_per_step=24, sequence_length=900, history_length=1)},
        3,
        GroupOrder(["A"] * 4, 7, "train"),
        SamplingParams(24),
        GroupShape(2, at_once=8),
    )
    collector = AsyncEnvCollector(flow, 4, 1.0)
    model, largest, tokens = reference(folder), 0.0, 0
    try:
        for step in range(1, 6):
            with collector.paused():
                assert not any(engine.abort() for engine in local), "something runs in a pause"
                collector.weights_are(step - 1)
            if step > 1:
                interrupt(flow)
            episodes, metrics = collector(step)
            assert metrics["scheduler/off_policy_max"] <= 1
            batch = to_batch(episodes, DIALOGUE, 0, 900)
            for row in range(len(batch)):
                prompt = batch["prompts"][row][-int(batch["prompt_lengths"][row]) :]
                response = batch["responses"][row][: int(batch["response_lengths"][row])]
                mask = batch["response_mask"][row][: len(response)]
                with torch.no_grad():
                    logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
                found = logits.log_softmax(-1).gather(-1, response[:, None])[:, 0]
                given = batch["infer_log_probs"][row][: len(response)]
                largest = max(largest, float((found - given)[mask].abs().max()))
                tokens += int(mask.sum())
    finally:
        collector.close()
        for engine in local:
            engine.stop()
    assert flow.resumed >= 4
    assert tokens > 5 * 8 * 4
    assert largest < 1e-4
