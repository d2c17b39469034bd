"""The reward of `step.work`, as our configs name one."""

from __future__ import annotations

import sys
from pathlib import Path

from roll_core.rewards import Reward, RewardSample, Score

sys.path.insert(0, str(Path(__file__).parent.parent))

from step.work import reward_of


class LetterReward(Reward):
    """A number that depends on every letter of the answer."""

    def score(self, sample: RewardSample) -> Score:
        """See `reward_of`."""
        return Score(reward_of(sample.response))
