from collections.abc import Callable
from typing import Any

import pytest

from roll_core.rewards.base import RewardSample, Score
from roll_core.rewards.code_sandbox import CodeSandboxReward

Run = Callable[..., Score]


def _made(wall_s: float) -> CodeSandboxReward:
    made = CodeSandboxReward(wall_s=wall_s, memory_mib=512)
    made.warm_up()
    return made


@pytest.fixture(scope="session")
def reward() -> CodeSandboxReward:
    """One reward for all tests: finding out what isolates programs takes a moment. It waits for a busy machine."""
    return _made(wall_s=30.0)


@pytest.fixture(scope="session")
def hasty_reward() -> CodeSandboxReward:
    """A reward for programs that must not pass, and may never end."""
    return _made(wall_s=2.0)


def _runs(reward: CodeSandboxReward) -> Run:
    def scored(program: str, tests: Any, kind: str = "pytest", function: str = "", language: str = "python") -> Score:
        fields = {"test_cases": tests, "case_type": kind, "test_case_function": function}
        return reward.score(RewardSample("1", "", f"```{language}\n{program}\n```\n", fields=fields))

    return scored


@pytest.fixture
def run(reward: CodeSandboxReward) -> Run:
    """Scores a program in a fence against its tests."""
    return _runs(reward)


@pytest.fixture
def run_hastily(hasty_reward: CodeSandboxReward) -> Run:
    """The same, with two seconds for each program."""
    return _runs(hasty_reward)
