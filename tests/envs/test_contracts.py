"""The contract of every environment, run on the built-in ones."""

from __future__ import annotations

import importlib.util
import json
from collections import deque
from collections.abc import Iterable, Iterator

from roll_core.envs.arithmetic import evaluate, shown
from roll_core.envs.base import BUILTIN_ENVIRONMENTS
from roll_core.envs.calculator import Calculator
from roll_core.envs.frozen_lake import ACTIONS, FrozenLake
from roll_core.envs.gem_adapter import GemEnvironment
from roll_core.envs.guess_number import GuessNumber
from roll_core.envs.sokoban import Sokoban
from roll_core.testing.env_contract import EnvContract


def missing(package: str) -> str:
    return "" if importlib.util.find_spec(package) else f"there is no package '{package}' here"


def answer(content: object) -> str:
    return f"<answer>{content}</answer>"


class TestFrozenLake(EnvContract):
    environment = "frozen_lake"
    options = {"is_slippery": False}

    @staticmethod
    def winning_answers(environment: FrozenLake) -> Iterable[str]:
        return [answer(ACTIONS[number]) for number in way_over_ice(environment)]


class TestSlipperyFrozenLake(EnvContract):
    environment = "frozen_lake"
    options = {"size": 5, "max_steps": 30, "observation": "near"}


class TestSokoban(EnvContract):
    environment = "sokoban"
    options = {"dim_room": [6, 6], "num_boxes": 1}

    @staticmethod
    def winning_answers(environment: Sokoban) -> Iterable[str]:
        return [answer(move) for move in environment.board.solution]


class TestLargeSokoban(TestSokoban):
    options = {"max_steps": 150, "grid_lookup": dict(enumerate("W.GCBA@"))}


class TestCalculator(EnvContract):
    environment = "calculator"

    @staticmethod
    def winning_answers(environment: Calculator) -> Iterable[str]:
        call = {"name": "calculator", "arguments": {"expression": environment.problem}}
        yield f"<tool_call>{json.dumps(call)}</tool_call>"
        yield answer(shown(evaluate(environment.problem)))


class TestGuessNumber(EnvContract):
    environment = "guess_number"

    @staticmethod
    def winning_answers(environment: GuessNumber) -> Iterator[str]:
        while True:
            yield answer(sum(environment.left) // 2)


class TestGuessNumberByRange(TestGuessNumber):
    options = {"observation": "range", "lowest": -50, "highest": 50}


class TestGymnasium(EnvContract):
    environment = "gymnasium"
    options = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}, "observation": "ansi", "success_return": 1}
    is_always_the_same = True
    unavailable = missing("gymnasium")

    @staticmethod
    def winning_answers(environment: object) -> Iterable[str]:
        return [answer(number) for number in (1, 1, 2, 1, 2, 2)]


class TestGymnasiumBlackjack(EnvContract):
    environment = "gymnasium"
    options = {"id": "Blackjack-v1", "actions": ["Stick", "Hit"]}
    unavailable = missing("gymnasium")


class TestGem(EnvContract):
    environment = "gem"
    options = {"id": "game:Mastermind-v0-hard"}
    unavailable = missing("gem")

    @staticmethod
    def winning_answers(environment: GemEnvironment) -> Iterable[str]:
        return [rf"\boxed{{{' '.join(map(str, environment.inner.game_code))}}}"]


class TestGemNumber(EnvContract):
    environment = "gem"
    options = {"id": "game:GuessTheNumber-v0-hard"}
    unavailable = missing("gem")

    @staticmethod
    def winning_answers(environment: GemEnvironment) -> Iterable[str]:
        return [rf"\boxed{{{environment.inner.game_number}}}"]


class TestGemPuzzle(EnvContract):
    environment = "gem"
    options = {"id": "game:FifteenPuzzle-v0-hard"}
    unavailable = missing("gem")


class TestGemReasoning(EnvContract):
    environment = "gem"
    options = {"id": "rg:leg_counting"}
    unavailable = missing("gem")

    @staticmethod
    def winning_answers(environment: GemEnvironment) -> Iterable[str]:
        return [rf"\boxed{{{environment.inner.data['answer']}}}"]


def test_no_built_in_environment_is_left_out() -> None:
    contracts = [value for value in globals().values() if isinstance(value, type) and issubclass(value, EnvContract)]
    assert {contract.environment for contract in contracts[1:]} == set(BUILTIN_ENVIRONMENTS)


def way_over_ice(lake: FrozenLake) -> list[int]:
    """The shortest way to the goal, as numbers of actions."""
    ways: dict[tuple[int, int], list[int]] = {lake.player: []}
    queue = deque([lake.player])
    start = lake.player
    while lake.goal not in ways:
        cell = queue.popleft()
        for number in ACTIONS:
            lake.player = cell
            lake._move(number)
            if lake.player not in lake.holes and lake.player not in ways:
                ways[lake.player] = [*ways[cell], number]
                queue.append(lake.player)
    lake.player = start
    return ways[lake.goal]
