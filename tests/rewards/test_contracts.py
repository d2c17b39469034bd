"""The contract of every reward, run on the built-in ones."""

from __future__ import annotations

import json

from roll_core.rewards import RewardSample
from roll_core.testing.reward_contract import RewardContract


class TestIFEval(RewardContract):
    reward = "ifeval"
    correct = RewardSample("1", "", "No pause here.", json.dumps({"func_name": "validate_no_commas"}))
    wrong = RewardSample("2", "", "Well, a pause.", json.dumps({"func_name": "validate_no_commas"}))


class TestCrossThinkQA(RewardContract):
    reward = "crossthinkqa"
    options = {"reward_type": "soft"}
    correct = RewardSample("1", "", r"\boxed{C}", "C")
    wrong = RewardSample("2", "", r"\boxed{D}", "C")


class TestMultipleChoice(RewardContract):
    reward = "multiple_choice"
    correct = RewardSample("1", "", r"\boxed{C}", "C")
    wrong = RewardSample("2", "", r"\boxed{D}", "C")
