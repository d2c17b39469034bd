"""The contract of every reward, run on the two of this example."""

from pathlib import Path

from roll_core.rewards import RewardSample
from roll_core.testing.reward_contract import RewardContract

FILE = Path(__file__).with_name("my_rewards.py")


class TestAnswerOnLastLine(RewardContract):
    reward = f"{FILE}:answer_on_last_line"
    correct = RewardSample("1", "2+2?", "Let me see.\n4", ground_truth="4")
    wrong = RewardSample("2", "2+2?", "Let me see.\n5", ground_truth="4")


class TestKeywordReward(RewardContract):
    reward = f"{FILE}:KeywordReward"
    correct = RewardSample("1", "", "The gravity of the moon.", fields={"topic": "tides"})
    wrong = RewardSample("2", "", "Nobody knows.", fields={"topic": "tides"})
