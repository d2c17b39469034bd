"""Environments of gymnasium: what is shown, what is done, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from roll_core.envs import make_environment
from roll_core.envs.gymnasium_adapter import GymnasiumEnvironment, written
from roll_core.errors import RollError


def answer(content: object) -> str:
    return f"<answer>{content}</answer>"


def cliff(**options: Any) -> GymnasiumEnvironment:
    pytest.importorskip("gymnasium", reason="there is no package 'gymnasium' here")
    made = make_environment(
        "gymnasium", {"id": "CliffWalking-v1", "actions": ["Up", "Right", "Down", "Left"], **options}
    )
    assert isinstance(made, GymnasiumEnvironment)
    return made


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(RollError) as error:
        make_environment("gymnasium", {"id": "CliffWalking-v1"})
    assert str(error.value) == (
        "environment 'gymnasium' needs the package gymnasium, which is not installed\n  try: pip install gymnasium"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (36, "36"),
        ((1, [2, 0.123456]), "[1, [2, 0.1235]]"),
        ({"position": (0.5,), "load": 3}, "position: [0.5], load: 3"),
        (bytearray(b""), "bytearray(b'')"),
    ],
)
def test_observations_are_written_out(value: object, text: str) -> None:
    assert written(value) == text


def test_arrays_are_written_out() -> None:
    numpy = pytest.importorskip("numpy")
    assert written((numpy.int64(3), numpy.array([1.0, 0.25], dtype="float32"))) == "[3, [1, 0.25]]"


def test_names_of_actions_move_and_the_instruction_lists_them() -> None:
    one = cliff()
    observation, info = one.reset(0)
    assert observation == "36" and "Actions: Up, Right, Down, Left." in info["env_instruction"]
    observation, reward, terminated, truncated, info = one.step(answer("up"))
    assert (observation, reward, terminated, truncated) == ("24", -1.0, False, False)
    assert info["metrics"] == {"action_is_effective": 1.0, "action_is_valid": 1.0, "format_penalty": 0.0}


def test_an_answer_without_an_action_does_not_reach_the_environment() -> None:
    one = cliff(format_penalty=-0.5)
    one.reset(0)
    observation, reward, terminated, _, info = one.step(answer("Jump"))
    assert (observation, reward, terminated, info["metrics"]["action_is_valid"]) == ("36", -0.5, False, 0.0)


def test_its_own_picture_can_be_shown() -> None:
    picture = cliff(observation="ansi").reset(0)[0]
    assert picture.splitlines()[-1] == "x  C  C  C  C  C  C  C  C  C  C  T"


def test_success_is_a_return_that_is_high_enough_at_the_end() -> None:
    one = cliff(success_return=-13)
    one.reset(0)
    steps = [one.step(answer(move)) for move in ["Up", *["Right"] * 11, "Down"]]
    assert [step[2] for step in steps] == [*[False] * 12, True]
    assert [step[4]["metrics"]["success"] for step in steps] == [*[0.0] * 12, 1.0]


def test_an_episode_is_truncated_after_max_steps() -> None:
    one = cliff(max_steps=2)
    one.reset(0)
    assert [one.step("")[3] for _ in range(2)] == [False, True]


def test_actions_that_are_not_discrete_are_refused() -> None:
    cliff()
    with pytest.raises(
        RollError, match=r"the actions of gymnasium's 'MountainCarContinuous-v0' are Box\(.*only Discrete"
    ):
        make_environment("gymnasium", {"id": "MountainCarContinuous-v0"})


def test_an_unknown_environment_is_told_with_what_gymnasium_says() -> None:
    cliff()
    with pytest.raises(RollError, match=r"cannot make 'Nowhere-v0' with no options: .*Nowhere"):
        make_environment("gymnasium", {"id": "Nowhere-v0"})


def test_names_must_fit_the_actions() -> None:
    with pytest.raises(ValueError, match="'CliffWalking-v1' has 4 actions, from 0; each needs a name of its own"):
        cliff(actions=["Up", "Down"])
