"""The contract of environments catches what it is for: mistakes planted in a small one, each in its own test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from roll_core.testing.env_contract import ODD_ANSWERS, EnvContract
from tests.testing import planted_envs


def contract_for(name: str) -> EnvContract:
    class Planted(EnvContract):
        environment = f"{planted_envs.__file__}:{name}"
        longest = 20

        @staticmethod
        def winning_answers(environment: Any) -> Iterable[str]:
            return [str(environment.number)]

    return Planted()


class TestRight(EnvContract):
    environment = f"{planted_envs.__file__}:Right"
    longest = 20

    @staticmethod
    def winning_answers(environment: Any) -> Iterable[str]:
        return [str(environment.number)]


@pytest.mark.parametrize(
    ("name", "test", "said"),
    [
        ("SaltedHash", "a_seed_gives_the_same_episode_in_another_process", "number "),
        ("GlobalRandomness", "what_others_draw_changes_nothing_and_nothing_is_drawn_from_them", "global random state"),
        ("LeftOver", "a_seed_gives_the_same_episode_again", "number "),
        ("SharedState", "what_others_draw_changes_nothing_and_nothing_is_drawn_from_them", "round "),
        ("SeedIgnored", "seeds_give_different_episodes", "assert 1 > 1"),
        ("Unwinnable", "an_episode_can_be_won", "seed 0: not over after 1 winning answers"),
        ("EverythingIsValid", "an_answer_without_an_action_is_no_valid_action", "assert 1.0 == 0.0"),
    ],
)
def test_a_planted_mistake_is_caught(name: str, test: str, said: str) -> None:
    with pytest.raises(AssertionError) as error:
        getattr(contract_for(name), f"test_{test}")()
    assert said in str(error.value)


@pytest.mark.parametrize("answering", ["nothing", "by chance"])
def test_an_endless_episode_is_caught(answering: str) -> None:
    with pytest.raises(AssertionError, match="an episode has not ended after 20 steps"):
        contract_for("Endless").test_every_episode_ends_and_another_can_begin(answering)


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("Raises", "blank", "nothing was said"),
        ("NotANumber", "empty", "the reward is nan"),
        ("Echo", "a lone surrogate", "surrogates not allowed"),
        ("Echo", "long", "an observation of 1000000 characters"),
        ("UnknownMode", "empty", "metrics_agg_mode knows mean, sum, min, max, last, first, not"),
    ],
)
def test_a_malformed_result_is_caught(name: str, answer: str, said: str) -> None:
    assert answer in ODD_ANSWERS
    with pytest.raises((AssertionError, ValueError)) as error:
        contract_for(name).test_odd_answers_get_a_well_formed_result(answer)
    assert said in str(error.value)
