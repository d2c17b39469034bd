"""The reward: 1 for an answer that is the name of the square's colour and nothing else."""

from __future__ import annotations

from roll_core.rewards import RewardSample


def names_the_colour(sample: RewardSample) -> float:
    """1 for the right word alone, 0 for any other answer."""
    return float(sample.response.strip() == sample.ground_truth)
