from collections.abc import Callable
from typing import Any

import pytest

from roll_core.rewards.base import RewardSample, Score
from roll_core.rewards.code_sandbox import CodeSandboxReward

Run = Callable[..., Score]


@pytest.fixture(scope="session")
def reward() -> CodeSandboxReward:
    """One reward for all tests: finding out what isolates programs takes a moment."""
    made = CodeSandboxReward(wall_s=2.0, memory_mib=512)
    made.warm_up()
    return made


@pytest.fixture
def run(reward: CodeSandboxReward) -> Run:
    """Scores a program in a fence against its tests."""

    def scored(program: str, tests: Any, kind: str = "pytest", function: str = "", language: str = "python") -> Score:
        fields = {"test_cases": tests, "case_type": kind, "test_case_function": function}
        return reward.score(RewardSample("1", "", f"```{language}\n{program}\n```\n", fields=fields))

    return scored
