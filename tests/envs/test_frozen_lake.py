"""The frozen lake: its maps, its moves, and what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roll_core.envs import make_environment
from roll_core.envs.base import ActionParser
from roll_core.envs.frozen_lake import FrozenLake
from roll_core.errors import RollError


def answer(name: str) -> str:
    return f"<answer>{name}</answer>"


def lake(**options: object) -> FrozenLake:
    made = make_environment("frozen_lake", {"is_slippery": False, **options})
    assert isinstance(made, FrozenLake)
    return made


def test_a_seed_gives_the_same_lake_in_any_process() -> None:
    code = "from roll_core.envs.frozen_lake import FrozenLake\nprint(*[FrozenLake().reset(s)[0] for s in range(20)])"
    shown = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": str(seed)}
        ).stdout
        for seed in (1, 2)
    }
    assert shown == {" ".join(FrozenLake().reset(seed)[0] for seed in range(20)) + "\n"}


@pytest.mark.parametrize("p", [0.3, 0.6, 0.8, 1.0])
def test_every_lake_has_a_way_of_at_least_the_least_distance(p: float) -> None:
    one = lake(p=p, min_distance=3)
    for seed in range(200):
        one.reset(seed)
        distance = one.distance()
        assert distance is not None and distance >= 3


def test_seeds_give_different_lakes() -> None:
    assert len({lake().reset(seed)[0] for seed in range(100)}) > 90


def test_walking_to_the_goal_is_worth_one_and_ends_the_episode() -> None:
    one = lake(p=1.0)
    one.reset(0)
    one.player, one.goal = (0, 0), (0, 1)
    observation, reward, terminated, truncated, info = one.step(answer("Right"))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["metrics"]["success"] == 1.0
    assert observation.splitlines()[0] == "_\u221a__"


def test_falling_into_a_hole_ends_the_episode_without_reward() -> None:
    one = lake(p=1.0)
    one.reset(0)
    one.player, one.goal, one.holes = (0, 0), (3, 3), frozenset({(1, 0)})
    observation, reward, terminated, _, info = one.step(answer("down"))
    assert (reward, terminated, info["metrics"]["success"]) == (0.0, True, 0.0)
    assert observation.splitlines()[1][0] == "X"


@pytest.mark.parametrize("text", ["Right", answer("Jump"), answer(""), ""])
def test_an_answer_without_an_action_stays_where_it_is_and_costs_the_penalty(text: str) -> None:
    one = lake(format_penalty=-0.5)
    one.reset(3)
    before = one.player
    _, reward, terminated, _, info = one.step(text)
    assert (reward, terminated, one.player) == (-0.5, False, before)
    assert info["metrics"]["action_is_valid"] == 0.0


def test_walls_hold() -> None:
    one = lake(p=1.0)
    one.reset(0)
    one.player, one.goal = (0, 0), (3, 3)
    assert one.step(answer("Up"))[4]["metrics"]["action_is_effective"] == 0.0
    assert one.player == (0, 0)


def test_an_episode_is_cut_off_after_max_steps() -> None:
    one = lake(max_steps=2)
    one.reset(0)
    assert [one.step("nothing")[3] for _ in range(2)] == [False, True]


def test_slippery_ice_goes_astray_and_is_reproducible() -> None:
    def walk() -> list[str]:
        one = FrozenLake(p=1.0, max_steps=50)
        one.reset(5)
        return [one.step(answer("Right"))[0] for _ in range(20)]

    assert walk() == walk()
    assert len({text for text in walk()}) > 2


def test_near_says_where_the_goal_is_and_what_is_around() -> None:
    one = lake(observation="near")
    one.reset(0)
    one.player, one.goal, one.holes = (1, 0), (0, 3), frozenset({(2, 0)})
    assert one.render() == "goal up right\nLeft wall Down hole Right free Up free"


def test_options_that_cannot_be_are_told() -> None:
    with pytest.raises(RollError, match="environment 'frozen_lake' cannot be made with sizes=4"):
        make_environment("frozen_lake", {"sizes": 4})
    with pytest.raises(ValueError, match="min_distance is from 1 to 6 on a lake of 4 rows, not 7"):
        FrozenLake(min_distance=7)


def test_a_pattern_with_two_groups_gives_a_thought_and_an_action() -> None:
    parse = ActionParser(r"<think>(.*?)</think>\s*<answer>(.*?)</answer>", {0: "Left"})
    parsed = parse("<think>the goal\nis left</think> <answer> LEFT </answer><|im_end|>")
    assert (parsed.action, parsed.content, parsed.thought) == (0, "LEFT", "the goal\nis left")


def test_without_names_of_actions_the_text_is_the_action() -> None:
    assert ActionParser("^(.*)$")("42 <|im_end|>").action == "42"
