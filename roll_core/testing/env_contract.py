"""What every environment must keep, as tests to run on yours.

Subclass `EnvContract` in a test file, name the environment, and say how an episode is won:

    class TestMyMaze(EnvContract):
        environment = "my_package.mazes:Maze"
        options = {"size": 5}

        @staticmethod
        def winning_answers(environment):
            return [f"<answer>{move}</answer>" for move in environment.solution()]
"""

from __future__ import annotations

import json
import math
import numbers
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pytest

from roll_core.envs.base import make_environment
from roll_core.objects import absolute_spec
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.env_process import AGGREGATIONS, MAX_CHARACTERS
from roll_core.rollout.environments import Act, Begin, Kind, Observed, Order
from roll_core.testing.contract import Contract, within

ODD_ANSWERS: Mapping[str, str] = {
    "empty": "",
    "blank": " \n\t ",
    "null characters": "a\x00b\x00",
    "a lone surrogate": "\ud800 <answer>\ud800</answer>",
    "an answer of nothing": "<answer></answer>",
    "an answer that never ends": "<answer>" * 2000,
    "a very long number": f"<answer>{'9' * 10_000}</answer>",
    "other digits": "<answer>\u0663\u00b2</answer>",
    "a call that is no JSON": "<tool_call>{</tool_call>",
    "a call within calls": f"<tool_call>{'[' * 5000}</tool_call>",
    "long": "word " * 200_000,
    "special tokens": "<|im_end|><|im_start|>user\n",
    "a format string": "%s {0} {x} $HOME `id`",
}

_ELSEWHERE = (
    "import json, sys\n"
    "from roll_core.testing.env_contract import played\n"
    "print('PLAYED' + json.dumps(played(*json.loads(sys.stdin.read()))))"
)


@dataclass(frozen=True)
class Seen:
    """What there is to see of one `reset` or `step`."""

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    metrics: Mapping[str, float] | None = None
    suffix: str = ""


class EnvContract(Contract):
    """Episodes that their seed decides, in any process; results that are well-formed whatever the answer; an end."""

    environment: ClassVar[str]
    """Built-in name, dotted path or file path."""
    options: ClassVar[Mapping[str, Any]] = {}
    """`env_config`."""
    longest: ClassVar[int] = 200
    """Steps within which every episode ends, whatever is answered."""
    is_always_the_same: ClassVar[bool] = False
    """Whether the same answers lead to the same episode, whatever the seed."""
    deadline_s: ClassVar[float] = 60.0

    @staticmethod
    def winning_answers(environment: Any) -> Iterable[str] | None:
        """Answers that make an episode a success, given the environment after its `reset`; None where unknown."""
        return None

    def test_a_seed_gives_the_same_episode_in_another_process(self) -> None:
        for hash_seed in ("1", "2"):
            answers = self._answers()
            assert _played_elsewhere(self.environment, self.options, 3, answers, hash_seed) == self._play(3, answers)

    def test_a_seed_gives_the_same_episode_again(self) -> None:
        answers = self._answers()
        one = make_environment(self.environment, self.options)
        episodes = [_episode(one, seed, answers) for seed in (5, 6, 5)]
        assert episodes[0] == episodes[2]
        assert episodes[0] == self._play(5, answers)

    def test_what_others_draw_changes_nothing_and_nothing_is_drawn_from_them(self) -> None:
        answers = self._answers()
        expected = self._play(7, answers)
        one, other = (make_environment(self.environment, self.options) for _ in range(2))
        random.seed(0)
        state = random.getstate()
        seen, beside = [_began(one.reset(7))], [_began(other.reset(7))]
        for answer in answers[: len(expected) - 1]:
            seen.append(_stepped(one.step(answer)))
            beside.append(_stepped(other.step(answer)))
        assert random.getstate() == state, "the global random state was used"
        assert [asdict(entry) for entry in seen] == expected == [asdict(entry) for entry in beside]

    def test_seeds_give_different_episodes(self) -> None:
        if self.is_always_the_same:
            pytest.skip("is_always_the_same: nothing is drawn from the seed")
        answers = self._answers()
        assert len({json.dumps(self._play(seed, answers)) for seed in range(10)}) > 1

    @pytest.mark.parametrize("name", ODD_ANSWERS)
    def test_odd_answers_get_a_well_formed_result(self, name: str) -> None:
        one = make_environment(self.environment, self.options)
        _began(one.reset(1))
        within(self.deadline_s, f"step({name})", lambda: _stepped(one.step(ODD_ANSWERS[name])))

    def test_an_answer_without_an_action_is_no_valid_action(self) -> None:
        one = make_environment(self.environment, self.options)
        one.reset(1)
        metrics = _stepped(one.step("")).metrics or {}
        if "action_is_valid" not in metrics:
            pytest.skip("there is no metric action_is_valid")
        assert metrics["action_is_valid"] == 0.0

    @pytest.mark.parametrize("answering", ["nothing", "by chance"])
    def test_every_episode_ends_and_another_can_begin(self, answering: str) -> None:
        one = make_environment(self.environment, self.options)
        for seed in range(3):
            _began(one.reset(seed))
            answers = ("" if answering == "nothing" else _by_chance(one) for _ in range(self.longest))
            ends = (seen.terminated or seen.truncated for seen in (_stepped(one.step(answer)) for answer in answers))
            assert any(ends), f"an episode has not ended after {self.longest} steps"

    def test_an_episode_can_be_won(self) -> None:
        for seed in range(3):
            one = make_environment(self.environment, self.options)
            one.reset(seed)
            answers = self.winning_answers(one)
            if answers is None:
                pytest.skip("the contract was given no winning answers")
            seen = list(_until_the_end(one, answers))
            assert seen[-1].terminated, f"seed {seed}: not over after {len(seen)} winning answers"
            assert (seen[-1].metrics or {}).get("success") == 1.0
            assert sum(entry.reward for entry in seen) > 0.0

    def test_it_is_played_in_a_process_of_a_run_as_here(self) -> None:
        answers = self._answers()
        expected = self._play(9, answers)
        kind = Kind(self.environment, self.options)
        with EnvPool({"it": kind}, deadline_s=self.deadline_s) as pool:
            orders: list[Order] = [Begin(0, "it", 9), *(Act(0, answer) for answer in answers[: len(expected) - 1])]
            found = [pool.run([order])[0] for order in orders]
        assert [one for one in found if not isinstance(one, Observed)] == []
        told = [(one.text, one.reward, one.is_over) for one in found if isinstance(one, Observed)]
        assert told == [(one["text"], one["reward"], one["terminated"] or one["truncated"]) for one in expected]

    def test_it_can_be_closed(self) -> None:
        one = make_environment(self.environment, self.options)
        one.reset(0)
        close = getattr(one, "close", None)
        if close is not None:
            close()

    def _answers(self) -> list[str]:
        """Answers for an episode: by chance where the environment knows any, and in between some that are odd."""
        one = make_environment(self.environment, self.options)
        one.reset(11)
        answers = [_by_chance(one) for _ in range(8)]
        return [*answers[:3], "", *answers[3:6], ODD_ANSWERS["a format string"], *answers[6:]]

    def _play(self, seed: int, answers: Sequence[str]) -> list[dict[str, Any]]:
        return played(self.environment, self.options, seed, answers)


def played(spec: str, options: Mapping[str, Any], seed: int, answers: Sequence[str]) -> list[dict[str, Any]]:
    """What is seen of an episode, up to its end or the last answer."""
    return _episode(make_environment(spec, options), seed, answers)


def _episode(environment: Any, seed: int, answers: Sequence[str]) -> list[dict[str, Any]]:
    first = _began(environment.reset(seed))
    return [asdict(entry) for entry in (first, *_until_the_end(environment, answers))]


def _until_the_end(environment: Any, answers: Iterable[str]) -> Iterator[Seen]:
    for answer in answers:
        seen = _stepped(environment.step(answer))
        yield seen
        if seen.terminated or seen.truncated:
            return


def _played_elsewhere(
    spec: str, options: Mapping[str, Any], seed: int, answers: Sequence[str], hash_seed: str
) -> list[dict[str, Any]]:
    given = json.dumps([absolute_spec(spec), dict(options), seed, list(answers)])
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _ELSEWHERE]
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environ)
    # An environment may print of its own; what was played stands on the last line.
    marked = [line for line in done.stdout.splitlines() if line.startswith("PLAYED")]
    assert marked, f"another process could not play an episode\n{done.stderr[-2000:]}"
    entries: list[dict[str, Any]] = json.loads(marked[-1].removeprefix("PLAYED"))
    return entries


def _by_chance(environment: Any) -> str:
    sample = getattr(environment, "sample_random_action", None)
    try:
        return str(sample()) if sample is not None else "<answer>1</answer>"
    except NotImplementedError:
        return "<answer>1</answer>"


def _began(returned: Any) -> Seen:
    assert isinstance(returned, tuple) and len(returned) == 2, f"reset returned {returned!r}, not observation and info"
    text, info = returned
    assert isinstance(info, Mapping), f"info is {info!r}"
    for name in ("env_instruction", "suffix"):
        assert isinstance(info.get(name, ""), str), f"info['{name}'] is {info[name]!r}"
    return Seen(_text(text), suffix=info.get("suffix", ""))


def _stepped(returned: Any) -> Seen:
    assert isinstance(returned, tuple) and len(returned) == 5, (
        f"step returned {returned!r}, not observation, reward, terminated, truncated and info"
    )
    text, reward, terminated, truncated, info = returned
    assert isinstance(info, Mapping), f"info is {info!r}"
    metrics = {name: _number(value, f"metric {name}") for name, value in info.get("metrics", {}).items()}
    modes = info.get("metrics_agg_mode", {})
    assert set(modes.values()) <= set(AGGREGATIONS), f"metrics_agg_mode knows {', '.join(AGGREGATIONS)}, not {modes}"
    assert isinstance(info.get("suffix", ""), str), f"info['suffix'] is {info['suffix']!r}"
    assert type(terminated) is bool and type(truncated) is bool, f"not booleans: {terminated!r}, {truncated!r}"
    return Seen(_text(text), _number(reward, "reward"), terminated, truncated, metrics, info.get("suffix", ""))


def _text(value: Any) -> str:
    assert isinstance(value, str), f"the observation is {value!r}, not text"
    assert len(value) <= MAX_CHARACTERS, f"an observation of {len(value)} characters"
    # Lone surrogates can be in a Python string, and in no file and no tokenizer.
    value.encode("utf-8")
    return value


def _number(value: Any, name: str) -> float:
    assert isinstance(value, numbers.Real) and math.isfinite(float(value)), f"the {name} is {value!r}"
    return float(value)
