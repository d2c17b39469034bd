"""The reward of `async_rollout`: math_rule with verdicts that come late, and one in ten of them 20 times as late."""

from __future__ import annotations

import random
import time

from roll_core.rewards import RewardSample, Score
from roll_core.rewards.math_rule import MathRuleReward

SECONDS, LATE = 0.1, 20
"""What a verdict takes, and how many times as much the late ones."""
CHANCE = random.SystemRandom()
"""Each grading process is a copy of one that has loaded this, so that numbers from a seed would be the same in all."""


class LateVerdicts(MathRuleReward):
    """Scores as `math_rule`, after sleeping: waiting for a judge or a sandbox elsewhere takes no processor."""

    def score(self, sample: RewardSample) -> Score:
        """Which verdicts are late is left to chance: equal answers of a group are not late together."""
        is_late = CHANCE.random() < 0.1
        time.sleep(SECONDS * (LATE if is_late else 1))
        return super().score(sample)
