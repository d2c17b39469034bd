"""A step's episodes: whole groups in their order, whatever environments do; the same ones after a resume."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from roll_core.errors import RollError, WorkerDied
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.env_collector import EnvCollector
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode, Style
from roll_core.rollout.env_groups import GroupOrder, tags_of_groups
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.env_rollout import EnvRollout
from roll_core.rollout.environments import Kind
from tests.rollout.dialogues import byte_dialogue
from tests.rollout.groups import Group, Waiter

LAKE = Kind("frozen_lake", {"is_slippery": False, "action_pattern": "^(.*)$", "max_steps": 3})
FAULTY = """
    class Faulty:
        made = 0
        def __init__(self, bad):
            Faulty.made += 1
            self.bad, self.is_early = bad, Faulty.made <= 2
        def reset(self, seed):
            if self.bad == "always" or (self.bad == "odd" and seed % 2):
                raise RuntimeError(f"bad seed")
            return str(seed), {}
        def step(self, action):
            if self.bad == "at first" and self.is_early:
                raise RuntimeError("bad start")
            return "over", 1.0, True, False, {}
"""


class Engines(Group):
    """Answers with a direction that the request's seed decides."""

    turns_until_death = 10**9

    def generate(self, rank: int, requests: Sequence[GenerationRequest], interval: float) -> Iterator[list[Completion]]:
        self.turns_until_death -= 1
        for number, request in enumerate(requests):
            if rank == 1 and self.turns_until_death < 0 and number == 1:
                self.dead.add(rank)
                raise WorkerDied("actor_infer rank 1 died")
            word = random.Random(request.seed).choice(["Left", "Down", "Right", "Up"])
            ids = DIALOGUE.tokenizer(f"{word}<|im_end|>", add_special_tokens=False)["input_ids"]
            yield [Completion(request.request_id, tuple(ids), (-1.0,) * len(ids), "stop", 0)]


DIALOGUE: Dialogue = byte_dialogue()


def collector(kind: Kind, num_engines: int = 2, **settings: Any) -> EnvCollector:
    pool = EnvPool({"A": kind}, num_processes=2, deadline_s=20.0)
    engines: Any = Engines("actor_infer", num_engines)
    waiter: Any = Waiter()
    rollout = EnvRollout(engines, pool, waiter, DIALOGUE, {"A": Style("A", max_steps=3)}, seed=7)
    order = GroupOrder(["A"] * 4, 7, "train")
    given = {"num_groups": 4, "group_size": 3, **settings}
    return EnvCollector(rollout, order, SamplingParams(max_new_tokens=8), **given)


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    file = tmp_path / "faulty.py"
    file.write_text(textwrap.dedent(FAULTY))
    return f"{file}:Faulty"


def told(episodes: Sequence[Episode]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    return [
        (one.plan.traj_id, [(turn.observation, turn.answer, turn.reward) for turn in one.turns]) for one in episodes
    ]


def test_members_of_a_group_start_alike_and_groups_differently() -> None:
    source = collector(LAKE)
    try:
        episodes, metrics = source(1)
    finally:
        source.close()
    starts = [episode.turns[0].observation for episode in episodes]
    assert [len(set(starts[at : at + 3])) for at in range(0, 12, 3)] == [1, 1, 1, 1]
    assert len(set(starts)) == 4
    assert [(one.plan.group, one.plan.member) for one in episodes] == [(g, m) for g in range(4) for m in range(3)]
    assert metrics["env/faults"] == 0
    assert metrics["scheduler/collect_group_count"] == 4


def test_a_resumed_run_plays_the_episodes_of_one_that_was_never_stopped() -> None:
    source, again = collector(LAKE), collector(LAKE, num_engines=1, at_once=1)
    try:
        source(1)
        state = source.state_dict()
        expected = told(source(2)[0])
        again.load_state_dict(state)
        assert told(again(2)[0]) == expected
    finally:
        source.close()
        again.close()


def test_where_an_engine_dies_another_plays_its_turns_and_episodes_are_the_same() -> None:
    whole, torn = collector(LAKE), collector(LAKE)
    torn.rollout.engines.turns_until_death = 3  # type: ignore[attr-defined]
    try:
        expected = told(whole(1)[0])
        assert told(torn(1)[0]) == expected
        assert torn.rollout.engines.lost == {1}
        assert told(torn(2)[0]) == told(whole(2)[0])
    finally:
        whole.close()
        torn.close()


def test_an_episode_with_a_fault_is_played_again_from_the_same_start(faulty: str) -> None:
    source = collector(Kind(faulty, {"bad": "at first"}))
    try:
        episodes, metrics = source(1)
    finally:
        source.close()
    assert metrics["env/faults/step"] > 0
    assert metrics["scheduler/collect_group_count"] == 4
    assert len({one.plan.seed for one in episodes}) == 4
    assert max(one.plan.attempt for one in episodes) > 0


def test_a_group_that_cannot_begin_is_replaced_and_counted(faulty: str) -> None:
    source = collector(Kind(faulty, {"bad": "odd"}))
    try:
        episodes, metrics = source(1)
    finally:
        source.close()
    assert len(episodes) == 12
    assert all(one.plan.seed % 2 == 0 for one in episodes)
    assert metrics["scheduler/group_fault_count"] == metrics["scheduler/collect_group_count"] - 4
    assert metrics["env/faults/reset"] == 9 * metrics["scheduler/group_fault_count"]


def test_further_members_stand_in_for_those_with_faults(faulty: str) -> None:
    source = collector(Kind(faulty, {"bad": ""}), redundancy=2)
    try:
        episodes, _ = source(1)
    finally:
        source.close()
    assert [one.plan.member for one in episodes] == [0, 1, 2] * 4


def test_environments_that_never_work_end_the_run_with_their_reason(faulty: str) -> None:
    source = collector(Kind(faulty, {"bad": "always"}))
    try:
        with pytest.raises(
            RollError, match=r"groups of episodes .* were given up .*\n  .* x A: reset: RuntimeError: bad"
        ):
            source(1)
    finally:
        source.close()


def test_a_filter_drops_whole_groups_for_others() -> None:
    source = collector(LAKE, drops=lambda start, episodes: start.group in (0, 2))
    try:
        episodes, metrics = source(1)
    finally:
        source.close()
    assert list(dict.fromkeys(one.plan.group for one in episodes)) == [1, 3, 4, 5]
    assert metrics["scheduler/group_filter_count"] == 2


def test_environments_play_in_turn_and_seeds_count_their_episodes() -> None:
    order = GroupOrder(["A", "B"], seed=1, purpose="train")
    first, second, third = (order.next() for _ in range(3))
    assert [one.tag for one in (first, second, third)] == ["A", "B", "A"]
    assert third.seed == first.seed + 1
    assert GroupOrder(["A", "B"], seed=1, purpose="val").next().seed != first.seed
    assert GroupOrder(["A", "B"], seed=2, purpose="train").next().seed != first.seed


def test_groups_are_parted_as_the_config_says_or_evenly() -> None:
    assert tags_of_groups(["A", "B"], 4, [1, 3]) == ["A", "B", "B", "B"]
    assert tags_of_groups(["A", "B"], 5, None) == ["A", "A", "A", "B", "B"]
