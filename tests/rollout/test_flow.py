"""Rollouts that never stop, with engines and rewards replaced by ones that answer in this process."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from roll_core.cluster.calls import Call
from roll_core.data.answers import Continuing, RowStore, put_completions, rows_of
from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError, RollError, WorkerDied
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import Score
from roll_core.rollout.answer_shelf import AnswerShelf
from roll_core.rollout.async_collector import AsyncCollector
from roll_core.rollout.collector import Collector
from roll_core.rollout.engine_flow import check_account
from roll_core.rollout.flow import RolloutFlow
from roll_core.rollout.routing import EngineRouter, generates
from roll_core.rollout.sample import Sample
from tests.pipelines.bare_steps import Everywhere
from tests.rollout.groups import Group
from tests.rollout.samples import prompt

MOST_TOKENS = 50


class Stream:
    """Requests of a call: each grows by a token a tick, to its length."""

    def __init__(self, requests: Sequence[GenerationRequest], length_of: Callable[[GenerationRequest], int]) -> None:
        self.tokens = {request.request_id: 0 for request in requests}
        self.limits = {request.request_id: length_of(request) for request in requests}
        self.finished: list[Completion] = []
        self.version = 0

    def tick(self) -> None:
        for name in list(self.tokens):
            self.tokens[name] += 1
            if self.tokens[name] >= self.limits[name]:
                self.finish(name, "stop")

    def finish(self, name: str, reason: Any) -> None:
        count = self.tokens.pop(name)
        self.finished.append(Completion(name, (7,) * count, (-0.5,) * count, reason, self.version))


class RemoteStream(Stream):
    """Puts what it finishes, and goes on with what it reads."""

    def __init__(self, requests: Sequence[GenerationRequest], length_of: Any, store: RowStore) -> None:
        self.store, self.transport = store, store.open()
        self.going = Continuing(requests, self.transport)
        super().__init__(self.going.requests(), length_of)

    def finish(self, name: str, reason: Any) -> None:
        super().finish(name, reason)
        whole, request = self.going.whole(self.finished.pop()), self.going.asked[name]
        self.finished += put_completions(self.store, self.transport, [whole], [request], ["text"])


def length_of(request: GenerationRequest) -> int:
    return request.prompt_ids[0] - (len(request.prompt_ids) - 1)


class Engines(Group):
    """How long an answer becomes depends on its prompt alone: its first token is the number of tokens."""

    def __init__(self, size: int) -> None:
        super().__init__("actor_infer", size)
        self.streams: list[list[Stream]] = [[] for _ in range(size)]
        self.overlaps: set[str] = set()
        self.running: set[str] = set()

    def generate(self, rank: int, requests: Sequence[GenerationRequest], interval: float) -> Stream:
        return self.begin(rank, requests, Stream(requests, length_of))

    def generate_rows(
        self, rank: int, requests: Sequence[GenerationRequest], interval: float, store: RowStore, *_of_images: Any
    ) -> Stream:
        return self.begin(rank, requests, RemoteStream(requests, length_of, store))

    def begin(self, rank: int, requests: Sequence[GenerationRequest], stream: Stream) -> Stream:
        prefix = {request.request_id.rpartition("/")[0] for request in requests}
        self.overlaps |= prefix & self.running
        self.running |= prefix
        if rank not in self.dead:
            self.streams[rank].append(stream)
        return stream

    def die(self, rank: int) -> None:
        self.dead.add(rank)
        self.streams[rank] = []

    def abort(self, rank: int, _ids: Any) -> list[str]:
        names = [(stream, name) for stream in self.streams[rank] for name in stream.tokens]
        for stream, name in names:
            stream.finish(name, "abort")
        return [name for _, name in names]


class Waiter:
    def __init__(self, engines: Engines) -> None:
        self.engines = engines

    def poll(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        streams = [call.ref for call in calls if generates(call)]
        dead = self.engines.dead
        ready = [
            call
            for call in calls
            if not generates(call) or call.ref.finished or not call.ref.tokens or call.worker.context.rank in dead
        ]
        if any(call.method == "abort" and call.worker.context.rank in dead for call in ready):
            raise WorkerDied("actor_infer died")
        if not ready:
            time.sleep(0.0005)
            for stream in streams:
                stream.tick()
        return ready

    def wait(self, calls: Sequence[Call]) -> list[Any]:
        return [call.ref for call in calls]

    def take(self, call: Call) -> list[Completion] | None:
        if call.worker.context.rank in self.engines.dead:
            raise WorkerDied(f"actor_infer rank {call.worker.context.rank} died")
        if not call.ref.finished:
            return None
        taken, call.ref.finished = call.ref.finished, []
        self.engines.running -= {completion.request_id.rpartition("/")[0] for completion in taken}
        return taken


class Rewards(Group):
    def __init__(self) -> None:
        super().__init__("reward", 1)
        self.sent: dict[Call, list[str]] = {}

    def grade(self, rank: int, names: list[str]) -> list[float]:
        return [float(int(name.split("/")[2]) % 2) for name in names]

    def compute_rewards(self, rank: int, names: list[str]) -> list[float]:
        return self.grade(rank, names)

    def take_metrics(self) -> dict[str, float]:
        return {}

    def collect(self, call: Call, result: list[float]) -> dict[str, Score]:
        return dict(zip(self.sent.pop(call), map(Score, result)))


class Scheduler:
    seed = 3

    def __init__(self, size: int, most_running: int | None = None) -> None:
        self.most_running = most_running
        self.engines = Engines(size)
        self.rewards = Rewards()
        self.waiter = Waiter(self.engines)
        self.told: list[str] = []

    def router(self, order: Any) -> EngineRouter:
        engines: Any = self.engines
        waiter: Any = self.waiter
        return EngineRouter(engines, waiter, self.told.append, order, self.most_running)

    def decode(self, completions: Sequence[Completion]) -> list[str]:
        return ["text" if one.token_ids else "" for one in completions]

    def score(self, completions: Sequence[Completion], texts: Sequence[str], prompts: Any, store: None) -> list[Call]:
        names = [completion.request_id for completion in completions]
        call = self.rewards.submit_to(0, "compute_rewards", names)
        self.rewards.sent[call] = names
        return [call]


def flow_of(
    lengths: Sequence[int],
    batch_size: int,
    keeps: Callable[[Sequence[Sample]], bool] = lambda _: True,
    engines: int = 2,
    most_running: int | None = None,
    shelf: AnswerShelf | None = None,
) -> RolloutFlow:
    dataset = [replace(prompt(f"p{number}"), token_ids=(length,)) for number, length in enumerate(lengths)]
    sampler = PromptSampler([each.domain for each in dataset], batch_size, seed=1)
    scheduler: Any = Scheduler(engines, most_running)
    return RolloutFlow(scheduler, dataset, sampler, keeps, 2, SamplingParams(MOST_TOKENS), shelf)  # type: ignore[arg-type]


class OfStep:
    """What ends with the step."""

    def __init__(self) -> None:
        self.transport = Everywhere()
        self.shelf = AnswerShelf(self.transport, lambda end: self.ends.append(end), "nowhere")
        self.ends: list[Callable[[], None]] = []

    def num_left(self, flow: RolloutFlow) -> int:
        """Rows that are in the transport when the step has ended, beside those of what is open."""
        for end in self.ends:
            end()
        self.ends.clear()
        with flow.paused(), flow.changed:
            flow.state_dict()
            there = [one.so_far for each in flow.open_rollouts() for one in each.answers if one.so_far is not None]
            return self.transport.stats().rows - len(there)


@pytest.fixture
def opened() -> Iterator[list[AsyncCollector]]:
    collectors: list[AsyncCollector] = []
    yield collectors
    for one in collectors:
        one.close()
        assert not one.flow._thread.is_alive()


def steps(collector: AsyncCollector, first: int, last: int) -> Iterator[tuple[int, list[Sample], dict[str, float]]]:
    """What a pipeline does around each step."""
    for step in range(first, last + 1):
        with collector.paused():
            assert not any(stream.tokens for group in collector.flow.scheduler.engines.streams for stream in group)
            collector.weights_are(step - 1)
        samples, metrics = collector(step)
        yield step, samples, metrics
        time.sleep(0.003)


LONG_TAIL = [40 if number % 10 == 0 else 2 for number in range(60)]


@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_no_sample_is_older_than_the_bound_and_no_prompt_is_lost(ratio: float, opened: list[AsyncCollector]) -> None:
    flow = flow_of(LONG_TAIL, 4)
    opened.append(AsyncCollector(flow, 4, ratio))
    seen = []
    for step, samples, metrics in steps(opened[0], 1, 40):
        assert len(samples) == 8 and [sample.group for sample in samples] == [0, 0, 1, 1, 2, 2, 3, 3]
        ages = [step - 1 - (sample.first_version or 0) for sample in samples]
        assert min(ages) >= 0 and max(ages) <= ratio
        assert metrics["scheduler/off_policy_max"] == max(ages)
        assert all(len(sample.completion.token_ids) == sample.prompt.token_ids[0] for sample in samples)
        assert all(sample.completion.finish_reason == "stop" for sample in samples)
        seen += [sample.prompt.row.id for sample in samples[::2]]
    with flow.changed:
        check_account(flow)
        assert flow.account.ended == {"trained": 160, "filtered": 0, "stale": 0}
        assert flow.account.drawn - 160 == len(flow.open_rollouts()) <= 4 * (1 + ratio)
    assert flow.scheduler.engines.overlaps == set()
    assert flow.resumed > 0


def test_an_interrupted_answer_goes_on_from_where_it_was(opened: list[AsyncCollector]) -> None:
    flow = flow_of([40] * 8, 2, engines=1)
    opened.append(AsyncCollector(flow, 2, 1.0))
    samples = [sample for _, batch, _ in steps(opened[0], 1, 6) for sample in batch]
    assert {len(sample.completion.token_ids) for sample in samples} == {40}
    attempts = {sample.completion.request_id.rpartition("/")[2] for sample in samples}
    assert attempts - {"0"}


def test_dropped_prompts_are_replaced_and_counted(opened: list[AsyncCollector]) -> None:
    flow = flow_of([2] * 40, 4, keeps=lambda group: int(group[0].prompt.row.id[1:]) % 4 > 0)
    opened.append(AsyncCollector(flow, 4, 1.0))
    kept = [sample.prompt.row.id for _, batch, _ in steps(opened[0], 1, 20) for sample in batch]
    assert all(int(name[1:]) % 4 for name in kept)
    with flow.changed:
        check_account(flow)
        assert flow.account.ended["filtered"] > 10


def test_a_filter_that_drops_everything_ends_the_step_with_what_the_scores_were(opened: list[AsyncCollector]) -> None:
    opened.append(AsyncCollector(flow_of([1] * 40, 4, keeps=lambda _: False), 4, 1.0))
    with pytest.raises(RollError, match="prompts were dropped, and the step needs 4"):
        list(steps(opened[0], 1, 1))


def test_more_prompts_than_a_batch_may_run_and_what_gets_too_old_is_counted(opened: list[AsyncCollector]) -> None:
    flow = flow_of(LONG_TAIL, 4)
    opened.append(AsyncCollector(flow, 4, 1.0, extra=8))
    for step, samples, _ in steps(opened[0], 1, 30):
        assert max(step - 1 - (sample.first_version or 0) for sample in samples) <= 1
    with flow.changed:
        check_account(flow)
        assert flow.account.ended["stale"] > 0
        assert flow.account.ended["trained"] == 120


def test_a_resumed_run_draws_what_an_uninterrupted_one_would_and_loses_nothing(opened: list[AsyncCollector]) -> None:
    lengths = [10 if number % 5 == 0 else 2 for number in range(30)]
    first = AsyncCollector(flow_of(lengths, 3), 3, 1.0)
    opened.append(first)
    trained = [sample.prompt.row.id for _, batch, _ in steps(first, 1, 5) for sample in batch[::2]]
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second = AsyncCollector(flow_of(lengths, 3), 3, 1.0)
    opened.append(second)
    second.load_state_dict(state)
    drawn = state["account"]["drawn"]
    for _step, batch, metrics in steps(second, 6, 9):
        trained += [sample.prompt.row.id for sample in batch[::2]]
        drawn += metrics["scheduler/collect_query_count"]
        assert drawn <= second.flow.account.drawn, "a step tells prompts that were drawn before the checkpoint"
    held = [each["id"] for each in state["open"]]
    assert len(trained) == 27 and set(held) <= set(trained)
    assert len(set(trained)) == len(trained), "a prompt of the first epoch was trained on twice"
    with second.flow.changed:
        check_account(second.flow)


def test_a_state_with_prompts_on_their_way_is_refused_by_a_run_that_has_none(opened: list[AsyncCollector]) -> None:
    opened.append(AsyncCollector(flow_of([2] * 20, 2), 2, 1.0))
    list(steps(opened[0], 1, 2))
    sampler = PromptSampler(["math_rule"] * 20, 2, seed=1)
    one = Collector(None, [], sampler, {}, 2, SamplingParams(4))  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="async_generation_ratio as in the run that made it"):
        one.load_state_dict(opened[0].state_dict())


def test_answers_in_a_transport_are_freed_whatever_becomes_of_them(opened: list[AsyncCollector]) -> None:
    def keeps(group: Sequence[Sample]) -> bool:
        return int(group[0].prompt.row.id[1:]) % 4 > 0

    of_step = OfStep()
    flow = flow_of(LONG_TAIL, 4, keeps=keeps, shelf=of_step.shelf)
    opened.append(AsyncCollector(flow, 4, 1.0, extra=8))
    engines: Any = flow.scheduler.engines
    for step, samples, _ in steps(opened[0], 1, 40):
        assert all(sample.completion.num_tokens == sample.prompt.token_ids[0] for sample in samples)
        assert not any(sample.completion.token_ids or sample.text for sample in samples)
        read = of_step.shelf.read([rows_of([sample.completion]) for sample in samples])
        lengths = [len(found.token_ids) for found in read.values()]
        assert lengths == [sample.completion.num_tokens for sample in samples]
        if step == 10:
            engines.die(1)
        # What a dead engine put and never told is freed when its version is past.
        assert of_step.num_left(flow) == 0 or step in range(10, 14)
        if step == 25:
            engines.revive()
    with flow.changed:
        check_account(flow)
        assert flow.account.ended["stale"] > 0 and flow.account.ended["filtered"] > 0 and flow.resumed > 0
    assert {method for _, method, _ in engines.asked} == {"generate_rows", "abort"}


def test_one_of_two_engines_may_die_and_no_prompt_is_lost(opened: list[AsyncCollector]) -> None:
    flow = flow_of(LONG_TAIL, 4)
    opened.append(AsyncCollector(flow, 4, 1.0))
    engines: Any = flow.scheduler.engines
    told: list[str] = flow.scheduler.told  # type: ignore[attr-defined]
    for step, samples, _ in steps(opened[0], 1, 40):
        assert len(samples) == 8
        if step == 10:
            engines.die(1)
        if step == 25:
            assert engines.lost == {1}
            engines.revive()
    with flow.changed:
        check_account(flow)
    assert len(told) >= 1 and "actor_infer rank 1 died" in told[0]
    assert engines.restarts == 1
    asked = [rank for rank, method, _ in engines.asked if method.startswith("generate")]
    assert asked[-20:].count(1) > 0, "the engine that was started again is not used"


def test_five_hundred_steps_with_filters_aborts_a_dead_engine_and_a_resume_add_up(
    opened: list[AsyncCollector],
) -> None:
    lengths = [12 if number % 10 == 0 else 1 + number % 3 for number in range(5000)]

    def one() -> AsyncCollector:
        flow = flow_of(lengths, 4, keeps=lambda group: int(group[0].prompt.row.id[1:]) % 5 > 0)
        opened.append(AsyncCollector(flow, 4, 1.0, extra=2))
        return opened[-1]

    def through(collector: AsyncCollector, first: int, last: int) -> None:
        for step, samples, metrics in steps(collector, first, last):
            trained.extend(sample.prompt.row.id for sample in samples[::2])
            assert metrics["scheduler/off_policy_max"] <= 1
            engines: Any = collector.flow.scheduler.engines
            if step in (100, 400):
                engines.die(1)
            if step in (120, 420):
                engines.find_lost()
                engines.revive()

    trained: list[str] = []
    first, second = one(), one()
    through(first, 1, 250)
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second.load_state_dict(state)
    through(second, 251, 500)
    with second.flow.changed:
        check_account(second.flow)
        account, still_open = second.flow.account, second.flow.open_rollouts()
        assert account.drawn == sum(account.ended.values()) + len(still_open)
        assert account.ended["trained"] == len(trained) == 2000
        assert account.ended["filtered"] > 400 and second.flow.resumed > 0
    assert len(set(trained)) == 2000, "a prompt of the first epoch was trained on twice"
    assert len(first.flow.scheduler.told) == 1, "the engine's death was not told once"  # type: ignore[attr-defined]


def test_the_last_engines_death_ends_the_step(opened: list[AsyncCollector]) -> None:
    flow = flow_of(LONG_TAIL, 4, engines=1)
    opened.append(AsyncCollector(flow, 4, 1.0))
    flow.scheduler.engines.die(0)  # type: ignore[attr-defined]
    with pytest.raises(WorkerDied, match="actor_infer rank 0 died"):
        list(steps(opened[0], 1, 5))


def test_no_engine_is_given_more_than_it_may_run_and_ages_stay_bounded(opened: list[AsyncCollector]) -> None:
    flow = flow_of(LONG_TAIL, 4, most_running=4)
    opened.append(AsyncCollector(flow, 4, 1.0))
    streams = flow.scheduler.engines.streams  # type: ignore[attr-defined]
    for _step, _samples, metrics in steps(opened[0], 1, 40):
        assert metrics["scheduler/off_policy_max"] <= 1
        assert all(sum(len(stream.tokens) for stream in engine) <= 4 for engine in streams)
    with flow.changed:
        check_account(flow)


def test_an_error_in_the_flow_ends_the_step(opened: list[AsyncCollector]) -> None:
    def fails(_: Sequence[Sample]) -> bool:
        raise RollError("the filter broke")

    opened.append(AsyncCollector(flow_of([2] * 20, 2, keeps=fails), 2, 1.0))
    with pytest.raises(RollError, match="the filter broke"):
        list(steps(opened[0], 1, 1))
    opened[0].flow._thread.join(5)
    assert not opened[0].flow._thread.is_alive()
