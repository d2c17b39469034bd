"""Requests to engines: whole prompts together, a bound on what runs, and a dead engine's work done by the others."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from roll_core.cluster.calls import Call
from roll_core.errors import WorkerDied
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.routing import EngineRouter
from tests.rollout.groups import Group, Waiter


class Engines(Group):
    """Each call answers a request per `take`, the engine of `dies` only so many before it is gone."""

    def __init__(self, size: int, **dies: int) -> None:
        super().__init__("actor_infer", size)
        self.left = {int(name.removeprefix("rank")): count for name, count in dies.items()}

    def generate(
        self, rank: int, requests: Sequence[GenerationRequest], interval_s: float
    ) -> Iterator[list[Completion]]:
        for request in requests:
            if self.left.get(rank) == 0:
                self.dead.add(rank)
                raise WorkerDied(f"actor_infer rank {rank} died")
            if rank in self.left:
                self.left[rank] -= 1
            yield [Completion(request.request_id, (rank, request.seed), (0.0, 0.0), "stop", 0)]


def groups(*sizes: int) -> list[list[GenerationRequest]]:
    return [
        [
            GenerationRequest(f"train/0/{group}/{index}", (group,), SamplingParams(4), 10 * group + index, f"g{group}")
            for index in range(size)
        ]
        for group, size in enumerate(sizes)
    ]


def run(router: EngineRouter, calls: list[Call]) -> list[Completion]:
    """Take from every call in turn until none is left."""
    found: list[Completion] = []
    while calls:
        for call in list(calls):
            progress = router.take(call)
            found += progress.completions
            calls += progress.begun
            if progress.is_over:
                calls.remove(call)
    return found


def router(engines: Engines, told: list[str] | None = None, **options: Any) -> EngineRouter:
    waiter: Any = Waiter()
    return EngineRouter(engines, waiter, (told if told is not None else []).append, **options)  # type: ignore[arg-type]


def asked(engines: Engines) -> list[tuple[int, list[str]]]:
    return [(rank, [request.group for request in requests]) for rank, _method, requests in engines.asked]


def test_in_turn_is_by_order_and_least_loaded_is_by_size() -> None:
    engines = Engines(2)
    router(engines).submit(groups(3, 1, 1))
    assert asked(engines) == [(0, ["g0"] * 3 + ["g2"]), (1, ["g1"])]
    engines = Engines(2)
    router(engines, order="least loaded").submit(groups(3, 1, 1))
    assert asked(engines) == [(0, ["g0"] * 3), (1, ["g1", "g2"])]


def test_no_engine_has_more_requests_than_it_may_and_all_are_answered() -> None:
    for order in ("in turn", "least loaded"):
        engines = Engines(2)
        one = router(engines, order=order, most_running=4)
        calls = one.submit(groups(2, 2, 2, 2, 2, 2, 2))
        most = 0
        found: list[Completion] = []
        while calls:
            for call in list(calls):
                most = max(most, *one._load.values())
                progress = one.take(call)
                found += progress.completions
                calls += progress.begun
                if progress.is_over:
                    calls.remove(call)
        assert most == 4
        assert len({each.request_id for each in found}) == len(found) == 14


def test_a_group_larger_than_the_bound_has_an_engine_for_itself() -> None:
    engines = Engines(1)
    one = router(engines, most_running=2)
    assert len(run(one, one.submit(groups(5, 1)))) == 6
    assert asked(engines) == [(0, ["g0"] * 5), (0, ["g1"])]


def test_what_has_not_begun_can_be_taken_back() -> None:
    one = router(Engines(1), most_running=2)
    calls = one.submit(groups(2, 2))
    assert [request.group for request in one.recall()] == ["g1", "g1"]
    assert len(run(one, calls)) == 2


@pytest.mark.parametrize("order", ["in turn", "least loaded"])
@pytest.mark.parametrize("answered", [0, 1, 3])
def test_a_dead_engines_requests_are_answered_by_the_others_once_each(order: str, answered: int) -> None:
    engines, told = Engines(2, rank1=answered), []
    one = router(engines, told, order=order)
    found = run(one, one.submit(groups(2, 2, 2, 2)))
    assert sorted(each.request_id for each in found) == sorted(
        request.request_id for group in groups(2, 2, 2, 2) for request in group
    )
    assert [each.token_ids[0] for each in found].count(1) == answered
    assert {each.request_id: each.token_ids[1] for each in found} == {
        request.request_id: request.seed for group in groups(2, 2, 2, 2) for request in group
    }
    assert told == [
        f"actor_infer rank 1 died\n  its {4 - answered} unfinished answers are made by the other actor_infer engines; "
        "it is started again before the next weights are sent"
    ]
    assert engines.lost == {1}
    assert {rank for rank, _method, _ in engines.asked[2:]} == {0}


def test_what_waits_for_a_dead_engine_goes_to_another() -> None:
    engines = Engines(2, rank1=0)
    one = router(engines, most_running=2)
    assert len(run(one, one.submit(groups(2, 2, 2, 2)))) == 8


def test_an_engine_that_is_known_to_be_dead_is_asked_nothing() -> None:
    engines = Engines(3)
    engines.lost = {1}
    router(engines).submit(groups(1, 1, 1))
    assert [rank for rank, _ in asked(engines)] == [0, 2]


def test_the_last_engines_death_is_an_error() -> None:
    one = router(Engines(1, rank0=1))
    with pytest.raises(WorkerDied, match="actor_infer rank 0 died"):
        run(one, one.submit(groups(2)))
    one = router(Engines(2, rank0=1, rank1=0))
    with pytest.raises(WorkerDied, match="actor_infer rank 0 died"):
        run(one, one.submit(groups(2, 2)))


def test_an_episodes_turns_go_to_the_engine_that_read_the_earlier_ones() -> None:
    engines = Engines(3)
    one = router(engines, order="least loaded")
    keys = list(range(6))
    for _turn in range(4):
        run(one, one.submit(groups(*[1] * 6), keys))
    homes = {name: {rank for rank, names in asked(engines) if name in names} for name in (f"g{key}" for key in keys)}
    assert all(len(ranks) == 1 for ranks in homes.values())
    assert sorted(rank for ranks in homes.values() for rank in ranks) == [0, 0, 1, 1, 2, 2]
    one.forget(0)
    one.forget(3)
    run(one, one.submit(groups(1), [7]))
    assert asked(engines)[-1][0] == 0


def test_the_homes_of_a_dead_engine_are_shared_out_and_its_turns_played_elsewhere() -> None:
    engines = Engines(2, rank1=1)
    one = router(engines, order="least loaded")
    for _turn in range(3):
        assert len(run(one, one.submit(groups(1, 1, 1, 1), [0, 1, 2, 3]))) == 4
    assert engines.lost == {1}
    assert {rank for rank, names in asked(engines)[-1:]} == {0}


def test_in_turn_a_keys_number_decides() -> None:
    engines = Engines(2)
    one = router(engines)
    for _turn in range(2):
        run(one, one.submit(groups(1, 1, 1), [4, 7, 9]))
    assert asked(engines) == [(0, ["g0"]), (1, ["g1", "g2"])] * 2
