"""Rewards: scores for responses, from rules, programs or judges."""

from roll_core.rewards.base import Reward, RewardSample, Score, Status

__all__ = ["Reward", "RewardSample", "Score", "Status"]
