"""Guessing a number: hints, limits and rewards."""

from __future__ import annotations

import pytest

from roll_core.envs.guess_number import GuessNumber


def answer(content: object) -> str:
    return f"<answer>{content}</answer>"


def number(which: int, **options: object) -> GuessNumber:
    one = GuessNumber(**options)  # type: ignore[arg-type]
    one.reset(0)
    one.number = which
    return one


def test_hints_lead_to_the_number_and_it_is_worth_one() -> None:
    one = number(13)
    assert one.step(answer(10))[:4] == ("The number is higher than 10.", 0.0, False, False)
    assert one.step(answer(15))[:4] == ("The number is lower than 15.", 0.0, False, False)
    observation, reward, terminated, truncated, info = one.step(answer(13))
    assert (observation, reward, terminated, truncated) == ("13 is right.", 1.0, True, False)
    assert info["metrics"]["success"] == 1.0


def test_every_number_of_the_range_comes_up() -> None:
    one = GuessNumber(lowest=3, highest=6)
    found = set()
    for seed in range(60):
        one.reset(seed)
        found.add(one.number)
    assert found == {3, 4, 5, 6}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seven", "That is no whole number."),
        ("", "That is no whole number."),
        ("7.5", "That is no whole number."),
        ("1_0", "That is no whole number."),
        ("\u0667", "That is no whole number."),
        ("9" * 50, "That is no whole number."),
        ("21", "That is not from 1 to 20."),
        ("-3", "That is not from 1 to 20."),
    ],
)
def test_what_is_no_guess_is_told_and_costs_the_penalty(content: str, said: str) -> None:
    observation, reward, terminated, _, info = number(7, format_penalty=-0.5).step(answer(content))
    assert (observation, reward, terminated) == (said, -0.5, False)
    assert info["metrics"]["action_is_valid"] == 0.0


def test_a_guess_that_is_ruled_out_already_is_valid_and_has_no_effect() -> None:
    one = number(13)
    one.step(answer(10))
    metrics = one.step(answer(4))[4]["metrics"]
    assert (metrics["action_is_valid"], metrics["action_is_effective"]) == (1.0, 0.0)


def test_what_is_left_can_be_shown_instead_of_a_hint() -> None:
    one = number(13, observation="range")
    assert one.reset(0)[0] == "from 1 to 20"
    one.number = 13
    assert [one.step(answer(guess))[0] for guess in (10, 4, 15, "?")] == [
        "from 11 to 20",
        "from 11 to 20",
        "from 11 to 14",
        "from 11 to 14",
    ]


def test_an_episode_is_truncated_after_max_steps() -> None:
    one = number(13, max_steps=2)
    assert [one.step(answer(1))[3] for _ in range(2)] == [False, True]


def test_options_that_cannot_be_are_told() -> None:
    with pytest.raises(ValueError, match="highest is above lowest, but 5 is not above 5"):
        GuessNumber(lowest=5, highest=5)
    with pytest.raises(ValueError, match="observation is hint or range, not 'all'"):
        GuessNumber(observation="all")
