"""The reward of `async_rollout`: math_rule with verdicts that come late, and one in ten of them 20 times as late."""

from __future__ import annotations

import time
import zlib

from roll_core.rewards import RewardSample, Score
from roll_core.rewards.math_rule import MathRuleReward

SECONDS, LATE = 0.1, 20
"""What a verdict takes, and how many times as much the late ones."""


class LateVerdicts(MathRuleReward):
    """Scores as `math_rule`, after sleeping: waiting for a judge or a sandbox elsewhere takes no processor."""

    def score(self, sample: RewardSample) -> Score:
        """Which verdicts are late depends on the answer alone, so that both runs have the same share of them."""
        is_late = zlib.crc32(f"{sample.id} {sample.response}".encode()) % 10 == 0
        time.sleep(SECONDS * (LATE if is_late else 1))
        return super().score(sample)
