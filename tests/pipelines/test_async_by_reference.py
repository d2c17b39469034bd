"""Rollouts that go on while others train, with answers in a transport: the same batches, and nothing left behind."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from roll_core.rollout.engine_flow import check_account
from roll_core.transport import DataLost, TransportStats
from tests.pipelines.bare_steps import KL, SAMPLES, VALUES, Counting, Everywhere, Step

ASYNC = {"async_generation_ratio": 1.0}
FILTERED = {
    "rewards": {
        "math_rule": {
            "query_filter_config": {"type": "mean_filter", "filter_args": {"threshold_down": 0.3, "threshold_up": 0.9}}
        }
    }
}


@pytest.fixture
def opened() -> Iterator[list[Step]]:
    steps: list[Step] = []
    yield steps
    for one in steps:
        one.collector.close()
        assert not one.flow._thread.is_alive()


def assert_same_training(plain: Step, remote: Step) -> None:
    for role in ("actor_train", "critic"):
        for one, other in zip(plain.models[role], remote.models[role]):
            assert len(one.trained) == len(other.trained)
            for expected, found in zip(one.trained, other.trained):
                assert set(found.columns) == set(expected.columns) and found.meta_info == expected.meta_info
                for name in expected.columns:
                    assert found[name].dtype == expected[name].dtype and torch.equal(found[name], expected[name]), name
    assert sum(len(model.trained) for model in plain.models["actor_train"]) > 0


def num_waiting(step: Step) -> int:
    """Rows that the flow still needs, while it has nothing to do."""
    with step.flow.changed:
        check_account(step.flow)
        return sum(answer.so_far is not None for one in step.flow.open_rollouts() for answer in one.answers)


def drop_all(step: Step) -> None:
    step.flow.halt()
    with step.flow.changed:
        for one in step.flow.open_rollouts():
            step.flow.end(one, "stale")


@pytest.mark.parametrize("settings", [KL, VALUES, {**KL, **FILTERED}], ids=["KL loss", "values", "filtered"])
def test_every_rank_trains_on_the_same_rows_and_none_is_left_but_those_that_wait(
    settings: dict[str, Any], opened: list[Step]
) -> None:
    transport = Everywhere()
    plain = Step(settings | ASYNC, None, 12, interrupted=0.4)
    remote = Step(settings | ASYNC, transport, 12, interrupted=0.4)
    opened += [plain, remote]
    counts = {"filter": 0.0, "stale": 0.0, "resume": 0.0}
    for step in range(1, 7):
        (expected, batch), (found, summary) = plain(step), remote(step)
        assert found == expected and summary.num_rows == len(batch)
        assert plain.parts.shaper.state_dict() == remote.parts.shaper.state_dict()
        assert transport.stats().rows == num_waiting(remote) > 0
        counts = {name: count + found[f"scheduler/query_{name}_count"] for name, count in counts.items()}
    assert_same_training(plain, remote)
    assert counts["resume"] > 0 and (counts["filter"] > 0) == ("rewards" in settings)
    drop_all(remote)
    remote.collector.state_dict()
    assert transport.stats() == TransportStats(0, 0)


def test_less_than_a_hundredth_of_the_steps_passes_through_the_driver(opened: list[Step]) -> None:
    class Measured(Everywhere):
        num_put = 0

        def put(self, *arguments: Any, **options: Any) -> Any:
            before = self.stats().num_bytes
            handle = super().put(*arguments, **options)
            self.num_put += self.stats().num_bytes - before
            return handle

    transport = Measured()
    step = Step(KL | ASYNC, transport, 16_000, interrupted=0.4)
    opened.append(step)
    Counting.passed = 0
    step(1)
    assert step.flow.resumed > 0
    assert Counting.passed < transport.num_put / 100, f"{Counting.passed} bytes of {transport.num_put}"


@pytest.mark.parametrize("is_by_reference", [True, False])
def test_a_run_goes_on_from_its_checkpoint_as_one_that_was_never_stopped(
    is_by_reference: bool, opened: list[Step]
) -> None:
    """Also one that had no transport before, or has none any more."""
    settings = KL | FILTERED | ASYNC
    one = Step(settings, Everywhere(), 12, interrupted=0.4)
    other = Step(settings, Everywhere() if is_by_reference else None, 12, interrupted=0.4)
    opened += [one, other]
    for step in (1, 2, 3):
        one(step)
    state = one.collector.as_json(one.state)
    other.collector.load_state_dict(json.loads(json.dumps(state)))
    assert other.collector.as_json(other.collector.state_dict()) == state
    other.parts.shaper.load_state_dict(one.parts.shaper.state_dict())
    for role, models in one.models.items():
        for model in models:
            model.trained.clear()
        assert len(other.models[role]) == len(models)
    for step in (4, 5, 6):
        assert one(step)[0]["scheduler/off_policy_ratio"] == other(step)[0]["scheduler/off_policy_ratio"]
    assert_same_training(one, other)
    if is_by_reference:
        transport: Any = other.delivery.transport
        assert transport.stats().rows == num_waiting(other)


def interrupted_everywhere(transport: Everywhere | None, opened: list[Step]) -> Step:
    """A flow that stopped when it had some tokens of each answer, and none was complete."""
    step = Step(KL | ASYNC, transport, 1_000, interrupted=1.0)
    opened.append(step)
    step.engine.most_tokens, flow = 3, step.flow
    flow.weights_are(0)
    with flow.changed:
        flow.room = 2
        flow.begin()
        flow.wait_for(lambda: len(flow.open_rollouts()) == 2 and flow.resumed > 0)
    flow.halt()
    return step


def test_interrupted_answers_survive_a_checkpoint_and_engines_go_on_with_them(opened: list[Step]) -> None:
    first = interrupted_everywhere(Everywhere(), opened)
    state = json.loads(json.dumps(first.collector.as_json(first.collector.state_dict())))
    answers = [answer for one in state["open"] for answer in one["answers"]]
    assert len(answers) == 2 * SAMPLES and all(answer["token_ids"] for answer in answers)
    assert not any("finish_reason" in answer for answer in answers), "one was complete"
    plain, remote = Step(KL | ASYNC, None, 1_000), Step(KL | ASYNC, Everywhere(), 1_000)
    opened += [plain, remote]
    for step in (plain, remote):
        step.collector.load_state_dict(state)
        step(1)
    assert_same_training(plain, remote)
    batch = torch.cat(
        [row for model in plain.models["actor_train"] for one in model.trained for row in one["responses"]]
    )
    assert len(batch) > 0


def test_what_the_newest_state_refers_to_is_kept_until_there_is_a_newer_one(opened: list[Step]) -> None:
    transport = Everywhere()
    step = Step(KL | ASYNC, transport, 12)
    opened.append(step)
    step(1)
    num_rows = num_waiting(step)
    state = step.collector.state_dict()
    drop_all(step)
    assert transport.stats().rows == num_rows
    assert json.loads(json.dumps(step.collector.as_json(state)))["open"]
    step.collector.state_dict()
    assert transport.stats().rows == 0


class Mortal(Everywhere):
    """Loses some rows, as a process that ends takes what it put."""

    lost: frozenset[str] = frozenset()

    def get(self, handle: Any, fields: Any = None, *, copy: bool = True) -> Any:
        if self.lost & set(handle.row_ids):
            raise DataLost("rows are lost with the process that put them")
        return super().get(handle, fields, copy=copy)


def test_answers_that_are_lost_are_told_and_sampled_anew(
    opened: list[Step], capsys: pytest.CaptureFixture[str]
) -> None:
    transport = Mortal()
    first = Step(KL | ASYNC, transport, 12)
    opened.append(first)
    first(1)
    state = first.state
    rows = [answer["row"].keys[0] for one in state["open"] for answer in one["answers"]]
    transport.lost = frozenset(rows[: SAMPLES + 1])
    written = json.loads(json.dumps(first.collector.as_json(state)))
    assert f"{SAMPLES + 1} of {len(rows)} answers that were on their way are lost" in capsys.readouterr().out
    kept = [bool(answer["token_ids"]) for one in written["open"] for answer in one["answers"]]
    assert kept == [key not in transport.lost for key in rows]
    second = Step(KL | ASYNC, Everywhere(), 12)
    opened.append(second)
    second.collector.load_state_dict(written)
    metrics, _ = second(2)
    assert metrics["scheduler/off_policy_max"] <= 1
    assert metrics["scheduler/query_resume_count"] == 1, "one prompt kept some of its answers"


def test_answers_that_a_checkpoint_holds_unscored_are_scored_when_a_run_goes_on(opened: list[Step]) -> None:
    for transport in (None, Everywhere()):
        first, second = Step(KL | ASYNC, transport, 12), Step(KL | ASYNC, transport, 12)
        opened += [first, second]
        first(1)
        state = json.loads(json.dumps(first.collector.as_json(first.state)))
        del state["open"][0]["answers"][0]["score"]
        second.collector.load_state_dict(state)
        second(2)
        first(2)
        assert_same_training_of_last(first, second)


def assert_same_training_of_last(first: Step, second: Step) -> None:
    for one, other in zip(first.models["actor_train"], second.models["actor_train"]):
        for expected, found in zip(one.trained[-len(other.trained) :], other.trained):
            assert all(torch.equal(expected[name], found[name]) for name in expected.columns)


def test_what_a_dead_engine_put_and_never_told_is_freed_when_its_version_is_past(opened: list[Step]) -> None:
    transport = Everywhere()
    step = Step(KL | ASYNC, transport, 12)
    opened.append(step)
    step(1)
    store = step.flow.router.store
    assert store is not None
    transport.put({"responses": torch.zeros(3)}, 3, partition=store.rows.partition)
    found = []
    for number in (2, 3, 4):
        step(number)
        found.append(transport.stats().rows - num_waiting(step))
    assert found == [3, 0, 0]
