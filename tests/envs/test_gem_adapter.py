"""Environments of gem-llm: text through, randomness kept apart."""

from __future__ import annotations

import importlib
import logging
import random
import sys

import pytest

from roll_core.envs import make_environment
from roll_core.envs.gem_adapter import GemEnvironment
from roll_core.errors import RollError


def guessing() -> GemEnvironment:
    pytest.importorskip("gem", reason="there is no package 'gem-llm' here")
    made = make_environment("gem", {"id": "game:GuessTheNumber-v0-hard"})
    assert isinstance(made, GemEnvironment)
    return made


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setitem(sys.modules, "gem.envs", None)
    with pytest.raises(RollError, match=r"environment 'gem' needs the package gem-llm; .*\n  try: pip install gem-llm"):
        make_environment("gem", {"id": "game:GuessTheNumber-v0-hard"})


def test_observations_rewards_and_suffixes_come_through() -> None:
    one = guessing()
    observation, info = one.reset(3)
    assert observation.startswith("You are playing Guess The Number.")
    assert info["suffix"] == "Enter your next guess."
    number = one.inner.game_number
    wrong = number + 1 if number < 50 else number - 1
    observation, reward, terminated, truncated, info = one.step(rf"\boxed{{{wrong}}}")
    assert f"you guessed {wrong}" in observation
    assert (reward, terminated, truncated, info["metrics"]) == (0.0, False, False, {"success": 0.0})
    _, reward, terminated, _, info = one.step(rf"\boxed{{{number}}}")
    assert (reward, terminated, info["metrics"]) == (1.0, True, {"success": 1.0})


def test_a_seed_decides_however_many_episodes_were_played_before() -> None:
    pytest.importorskip("gem", reason="there is no package 'gem-llm' here")
    made = make_environment("gem", {"id": "rg:leg_counting", "kwargs": {"size": 5}})
    first, _ = made.reset(3)
    assert [made.reset(3)[0] for _ in range(12)] == [first] * 12


def test_what_it_draws_is_not_drawn_from_the_process() -> None:
    random.seed(1)
    before = random.getstate()
    one = guessing()
    one.reset(3)
    one.sample_random_action()
    assert random.getstate() == before


def test_the_logging_of_the_process_is_left_alone() -> None:
    before = list(logging.getLogger().handlers), logging.getLogger().level
    guessing()
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_an_unknown_environment_is_told() -> None:
    guessing()
    with pytest.raises(RollError, match=r"gem-llm cannot make 'game:Nothing' with no options: .*not found in registry"):
        make_environment("gem", {"id": "game:Nothing"})


def test_a_word_list_that_is_not_there_is_told_without_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    guessing()
    nltk = importlib.import_module("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(RollError, match=r"^gem-llm cannot make 'game:Wordle-v0-easy' with no options: Resource words"):
        make_environment("gem", {"id": "game:Wordle-v0-easy"})
