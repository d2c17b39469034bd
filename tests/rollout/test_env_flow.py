"""Episodes that never stop, with engines and environments replaced by ones that answer in this process."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from roll_core.errors import CheckpointError, RollError
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.rollout.env_async_collector import AsyncEnvCollector
from roll_core.rollout.env_collector import EnvCollector
from roll_core.rollout.env_episode import Episode, Style
from roll_core.rollout.env_flow import EpisodeFlow, GroupShape, check_episodes
from roll_core.rollout.env_groups import GroupOrder, GroupStart
from roll_core.rollout.environments import Answer, Begin, Environments, Fault, Observed, Order
from tests.rollout.dialogues import byte_dialogue
from tests.rollout.test_flow import Engines, Stream, Waiter

DIALOGUE = byte_dialogue()
TURNS = 4


class Talkers(Engines):
    """Every answer has as many tokens as it may have."""

    def generate(self, rank: int, requests: Sequence[GenerationRequest], interval: float) -> Stream:
        stream = Stream(requests, lambda request: request.params.max_new_tokens)
        if rank not in self.dead:
            self.streams[rank].append(stream)
        return stream


class Counting(Environments):
    """Tells the seed and the number of actions.

    `delay` says for how many polls a seed's environment thinks; one with a gate answers its second action only when
    the gate is open.
    """

    def __init__(self, delay: Callable[[int], int] = lambda _: 0, fails: Callable[[int], bool] = lambda _: False):
        self.delay, self.fails = delay, fails
        self.gates: dict[int, threading.Event] = {}
        self.begun: list[Begin] = []
        self.played: dict[int, tuple[int, list[str]]] = {}
        self.due: dict[int, int] = {}
        self.is_closed = False

    def submit(self, orders: Sequence[Order]) -> None:
        for order in orders:
            assert order.slot not in self.due, "an environment was asked twice"
            if isinstance(order, Begin):
                self.begun.append(order)
                assert order.expected in (None, f"{order.seed}:{len(order.actions)}")
                then = [] if order.then is None else [order.then]
                self.played[order.slot] = order.seed, [*order.actions, *then]
            else:
                self.played[order.slot][1].append(order.action)
            self.due[order.slot] = self.delay(self.played[order.slot][0])

    def poll(self, seconds: float) -> list[tuple[int, Answer]]:
        found: list[tuple[int, Answer]] = []
        for slot, left in list(self.due.items()):
            seed, actions = self.played[slot]
            self.due[slot] = left - 1
            is_open = len(actions) != 2 or seed not in self.gates or self.gates[seed].is_set()
            if left <= 0 and is_open:
                del self.due[slot]
                over = len(actions) >= TURNS
                text = f"{seed}:{len(actions)}"
                fault = self.fails(seed) and len(actions) == 1
                found.append((slot, Fault("step", "a bad seed") if fault else Observed(text, 0.5, over)))
        if not found:
            time.sleep(0.0003)
        return found

    def close(self) -> None:
        self.is_closed = True


Opened = Callable[..., AsyncEnvCollector]


@pytest.fixture
def opened() -> Iterator[Opened]:
    collectors: list[AsyncEnvCollector] = []

    def make(
        ratio: float = 1.0,
        pool: Counting | None = None,
        *,
        groups: int = 4,
        size: int = 2,
        redundancy: int = 0,
        at_once: int = 20,
        extra: int = 0,
        engines: int = 2,
        most_running: int | None = None,
        drops: Callable[[GroupStart, Sequence[Episode]], bool] | None = None,
    ) -> AsyncEnvCollector:
        talkers: Any = Talkers(engines)
        waiter: Any = Waiter(talkers)
        flow = EpisodeFlow(
            talkers,
            waiter,
            pool or Counting(slow),
            DIALOGUE,
            {"A": Style("A", max_steps=9)},
            3,
            GroupOrder(["A"] * 5, 7, "train"),
            SamplingParams(3),
            GroupShape(size, redundancy, at_once),
            drops=drops,
            most_running=most_running,
        )
        collectors.append(AsyncEnvCollector(flow, groups, ratio, extra))
        return collectors[-1]

    yield make
    for one in collectors:
        one.close()
        assert not one.flow._thread.is_alive()
        assert one.flow.pool.is_closed  # type: ignore[attr-defined]


def slow(seed: int) -> int:
    return 60 if seed % 10 == 0 else 1


def steps(collector: AsyncEnvCollector, first: int, last: int) -> Iterator[tuple[int, list[Episode], dict[str, float]]]:
    """What a pipeline does around each step."""
    for step in range(first, last + 1):
        with collector.paused():
            engines: Any = collector.flow.engines
            assert not any(stream.tokens for group in engines.streams for stream in group)
            collector.weights_are(step - 1)
        episodes, metrics = collector(step)
        yield step, episodes, metrics
        time.sleep(0.002)


def numbers(episodes: Sequence[Episode]) -> list[int]:
    return list(dict.fromkeys(one.plan.group for one in episodes))


def assert_free(flow: EpisodeFlow) -> None:
    """Only what is open holds environments."""
    with flow.changed:
        held = {member.slot for group in flow.open_rollouts() for member in group.members if member.slot is not None}
        assert set(flow._by_slot) == held
        assert set(flow._free_slots) | held | flow._at_work == set(range(flow._num_slots))
        assert len(flow._free_slots) == len(set(flow._free_slots))


@pytest.mark.parametrize("ratio", [0.0, 1.0, 2.0])
def test_no_episode_is_older_than_the_bound_and_none_is_lost(ratio: float, opened: Opened) -> None:
    collector = opened(ratio)
    seen: list[int] = []
    for _step, episodes, metrics in steps(collector, 1, 30):
        found = numbers(episodes)
        assert [(one.plan.group, one.plan.member) for one in episodes] == [(g, m) for g in found for m in (0, 1)]
        assert found == sorted(found)
        assert all(one.end == "terminated" and one.score == TURNS / 2 for one in episodes)
        assert all([turn.observation for turn in one.turns] == _texts(one.plan.seed) for one in episodes)
        assert metrics["scheduler/off_policy_max"] <= ratio
        seen += found
    flow = collector.flow
    with flow.changed:
        check_episodes(flow)
        assert len(set(seen)) == len(seen) == 120
        assert flow.account.ended == {"trained": 120, "filtered": 0, "stale": 0, "faulty": 0}
        assert flow.episodes.ended["trained"] == 240
        assert set(range(flow.order.drawn)) == set(seen) | {group.number for group in flow.open_rollouts()}
    assert flow.resumed > 0 or ratio == 0
    assert_free(flow)


def _texts(seed: int) -> list[str]:
    return [f"{seed}:{number}" for number in range(TURNS)]


def test_rows_are_whole_whatever_was_aborted_in_them(opened: Opened) -> None:
    collector = opened(1.0)
    for _step, episodes, _metrics in steps(collector, 1, 20):
        for one in episodes:
            [row] = one.rows
            assert [turn.end - turn.start for turn in row.turns] == [3] * TURNS
            assert sum(row.mask) == 3 * TURNS == len([value for value in row.log_probs if value == -0.5])
            assert len(row.response_ids) == len(row.mask) == len(row.log_probs)
    assert collector.flow.resumed > 0


def test_nobody_waits_for_a_slow_environment_but_its_own_group(opened: Opened) -> None:
    pool = Counting()
    collector = opened(1.0, pool, groups=4)
    flow = collector.flow
    blocked = flow.order.at(1).seed
    pool.gates[blocked] = threading.Event()
    with flow.changed:
        flow.room = 20
        flow.begin()
        flow.wait_for(lambda: sum(group.is_done for group in flow.open_rollouts()) == 19)
        [left] = [group for group in flow.open_rollouts() if not group.is_done]
    assert left.number == 1
    pool.gates[blocked].set()
    with flow.changed:
        flow.wait_for(lambda: left.is_done)


def test_redundant_members_stand_in_for_slow_ones_and_are_counted(opened: Opened) -> None:
    slow_ones: set[int] = set()
    pool = Counting()
    # The first environment of each group never answers.
    pool.delay = lambda seed: 10**9 if _is_first(pool, seed, slow_ones) else 0
    collector = opened(1.0, pool, groups=2, size=2, redundancy=1)
    spare = 0.0
    for _step, episodes, metrics in steps(collector, 1, 5):
        assert {one.plan.member for one in episodes} == {1, 2}
        spare += metrics["scheduler/episode_spare_count"]
    assert spare >= 10
    with collector.flow.changed:
        check_episodes(collector.flow)
    assert_free(collector.flow)


def _is_first(pool: Counting, seed: int, known: set[int]) -> bool:
    is_first = seed not in known
    known.add(seed)
    return is_first


def test_redundant_groups_are_left_behind_and_counted(opened: Opened) -> None:
    collector = opened(1.0, Counting(lambda seed: 200 if seed % 3 == 0 else 0), groups=4, extra=2)
    stale = 0.0
    for _step, episodes, metrics in steps(collector, 1, 6):
        assert len(numbers(episodes)) == 4
        assert metrics["scheduler/off_policy_max"] <= 1
        stale += metrics["scheduler/group_stale_count"]
    assert stale > 0
    with collector.flow.changed:
        check_episodes(collector.flow)
        assert collector.flow.episodes.ended["stale"] == 2 * collector.flow.account.ended["stale"] == 2 * stale
    assert_free(collector.flow)


def test_a_filter_frees_what_it_drops_and_others_are_played(opened: Opened) -> None:
    collector = opened(1.0, drops=lambda start, episodes: start.group % 3 == 0)
    kept = [number for _, episodes, _ in steps(collector, 1, 12) for number in numbers(episodes)]
    assert all(number % 3 for number in kept)
    with collector.flow.changed:
        check_episodes(collector.flow)
        assert collector.flow.account.ended["filtered"] >= 12
        assert collector.flow.episodes.ended["filtered"] == 2 * collector.flow.account.ended["filtered"]
    assert_free(collector.flow)


def test_faults_are_played_again_then_given_up_and_counted(opened: Opened) -> None:
    collector = opened(1.0, Counting(fails=lambda seed: seed % 3 == 0))
    counts: Counter[str] = Counter()
    for _step, episodes, metrics in steps(collector, 1, 12):
        assert all(one.plan.seed % 3 for one in episodes)
        counts.update({name: int(value) for name, value in metrics.items() if "fault" in name})
    assert counts["scheduler/group_fault_count"] > 0
    assert counts["env/faults/step"] == counts["env/faults"] == counts["scheduler/episode_fault_count"]
    assert counts["env/faults"] >= 3 * counts["scheduler/group_fault_count"]
    with collector.flow.changed:
        check_episodes(collector.flow)
    assert_free(collector.flow)


@pytest.mark.parametrize("is_filter", [True, False])
def test_where_nothing_is_ever_kept_the_step_ends_with_the_reason(is_filter: bool, opened: Opened) -> None:
    pool = Counting(fails=lambda _: not is_filter)
    collector = opened(1.0, pool, drops=lambda start, episodes: is_filter)
    told = "dropped by the filter" if is_filter else "x A: step: a bad seed"
    with pytest.raises(RollError, match=f"of .* groups of episodes(.|\n)*{told}"):
        list(steps(collector, 1, 1))


def test_a_resumed_run_plays_on_from_the_checkpoint_and_loses_nothing(opened: Opened) -> None:
    before = Counting()
    first = opened(1.0, before)
    trained = [number for _, episodes, _ in steps(first, 1, 4) for number in numbers(episodes)]
    # What is begun from here on comes to a stop in mid-episode.
    before.gates = {first.flow.order.at(number).seed: threading.Event() for number in range(first.flow.order.drawn, 40)}
    trained += [number for _, episodes, _ in steps(first, 5, 5) for number in numbers(episodes)]
    with first.flow.changed:
        first.flow.wait_for(lambda: all(len(one.episode.turns) == 2 for one in first.flow._by_slot.values()))
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    held = [each["number"] for each in state["open"]]
    assert held
    pool = Counting(slow)
    second = opened(1.0, pool)
    second.load_state_dict(state)
    again = json.loads(json.dumps(second.state_dict()))
    assert again == state
    for _step, episodes, metrics in steps(second, 6, 12):
        trained += numbers(episodes)
        assert metrics["scheduler/off_policy_max"] <= 1
        assert all([turn.observation for turn in one.turns] == _texts(one.plan.seed) for one in episodes)
        assert all(sum(row.mask) == 3 * TURNS for one in episodes for row in one.rows)
    assert set(held) <= set(trained)
    assert len(set(trained)) == len(trained) == 48
    assert sum(begin.then is not None for begin in pool.begun) == 2 * len(held)
    with second.flow.changed:
        check_episodes(second.flow)
        assert second.flow.account.ended["trained"] == 48
        assert set(range(second.flow.order.drawn)) == set(trained) | {one.number for one in second.flow.open_rollouts()}


def test_groups_of_another_size_cannot_go_on(opened: Opened) -> None:
    first = opened(1.0)
    list(steps(first, 1, 2))
    with pytest.raises(CheckpointError, match="groups of 2 episodes and 0 redundant ones, the config asks for 3 and 1"):
        opened(1.0, size=3, redundancy=1).load_state_dict(first.state_dict())


def test_what_was_on_its_way_is_refused_by_steps_that_play_their_own_episodes(opened: Opened) -> None:
    first = opened(1.0)
    list(steps(first, 1, 2))
    order = GroupOrder(["A"] * 5, 7, "train")
    one = EnvCollector(None, order, SamplingParams(3), num_groups=4, group_size=2)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="async_generation_ratio as in the run that made it"):
        one.load_state_dict(first.state_dict())
    order.drawn = 12
    second = opened(1.0)
    second.load_state_dict(one.state_dict())
    [(_, episodes, _)] = steps(second, 4, 4)
    assert min(numbers(episodes)) >= 12
    with second.flow.changed:
        check_episodes(second.flow)


def test_turns_of_an_episode_go_to_one_engine_and_another_takes_over_when_it_dies(opened: Opened) -> None:
    collector = opened(1.0, engines=3)
    engines: Any = collector.flow.engines
    for step, episodes, _metrics in steps(collector, 1, 20):
        assert len(episodes) == 8
        if step == 8:
            assert all(len(ranks) == 1 for ranks in _homes(engines).values())
            assert set().union(*_homes(engines).values()) == {0, 1, 2}
            engines.die(1)
    assert engines.lost == {1}
    with collector.flow.changed:
        check_episodes(collector.flow)
    assert_free(collector.flow)


def test_no_engine_is_given_more_turns_than_it_may_run(opened: Opened) -> None:
    collector = opened(1.0, most_running=3)
    engines: Any = collector.flow.engines
    for _step, episodes, metrics in steps(collector, 1, 15):
        assert len(episodes) == 8 and metrics["scheduler/off_policy_max"] <= 1
        assert all(sum(len(stream.tokens) for stream in engine) <= 3 for engine in engines.streams)
    with collector.flow.changed:
        check_episodes(collector.flow)
    assert_free(collector.flow)


def test_a_validation_plays_the_same_groups_again_with_other_answers(opened: Opened) -> None:
    collector = opened(0.0)
    engines: Any = collector.flow.engines
    for label in ("val/0", "val/5"):
        collector.order.drawn = 0
        episodes, metrics = collector.collect(label)
        assert numbers(episodes) == [0, 1, 2, 3]
        assert metrics["scheduler/collect_group_count"] == 4
        assert not any(stream.tokens for group in engines.streams for stream in group), "something runs afterwards"
    names = [request.request_id for _, _, requests in engines.asked for request in requests or ()]
    assert {name[:5] for name in names} == {"val/0", "val/5"}
    assert_free(collector.flow)


def _homes(engines: Any) -> dict[str, set[int]]:
    homes: dict[str, set[int]] = {}
    for rank, method, requests in engines.asked:
        for request in requests if method == "generate" else ():
            homes.setdefault(request.request_id.split("/")[1], set()).add(rank)
    return homes


def test_a_hundred_steps_with_everything_that_can_happen_add_up(opened: Opened) -> None:
    def one() -> AsyncEnvCollector:
        pool = Counting(lambda seed: 15 if seed % 10 == 0 else seed % 2, fails=lambda seed: seed % 11 == 0)
        drops = lambda start, episodes: start.group % 7 == 0  # noqa: E731
        return opened(1.0, pool, size=2, redundancy=1, extra=1, drops=drops)

    def through(collector: AsyncEnvCollector, first: int, last: int) -> None:
        for step, episodes, metrics in steps(collector, first, last):
            trained.extend(numbers(episodes))
            assert metrics["scheduler/off_policy_max"] <= 1
            engines: Any = collector.flow.engines
            if step in (20, 70):
                engines.die(1)
            if step in (25, 75):
                engines.find_lost()
                engines.revive()

    trained: list[int] = []
    first, second = one(), one()
    through(first, 1, 50)
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second.load_state_dict(state)
    through(second, 51, 100)
    flow = second.flow
    with flow.changed:
        check_episodes(flow)
        assert flow.account.ended["trained"] == len(trained) == len(set(trained)) == 400
        assert flow.account.ended["filtered"] > 30 and flow.account.ended["faulty"] > 0
        assert flow.episodes.ended["spare"] > 0 and flow.episodes.ended["fault"] > 0
        assert flow.account.drawn == flow.order.drawn
    assert_free(flow)
