"""A reward that an untrained model gets half of the time, so that every step has something to learn from."""

from roll_core.rewards import RewardSample


def score(sample: RewardSample) -> float:
    return float(sum(map(ord, sample.response)) % 2)
