"""Two rewards of one's own: a function, and a class that has options and something to load."""

from __future__ import annotations

import json
import re
from pathlib import Path

from roll_core.rewards import Reward, RewardSample, Score, Status


def answer_on_last_line(sample: RewardSample) -> float:
    """1 for a response whose last line is the reference answer."""
    lines = sample.response.strip().splitlines()
    return 1.0 if lines and lines[-1].strip() == sample.ground_truth.strip() else 0.0


class KeywordReward(Reward):
    """The share of a topic's keywords that a response mentions. The row names its topic in the column `topic`."""

    def __init__(self, keywords_file: str = str(Path(__file__).with_name("keywords.json"))) -> None:
        self._keywords_file = keywords_file
        self._keywords: dict[str, list[str]] = {}

    def warm_up(self) -> None:
        """Read the keywords once; the processes that score share them."""
        self._keywords = json.loads(Path(self._keywords_file).read_text())

    def score(self, sample: RewardSample) -> Score:
        """Score one response."""
        topic = sample.fields.get("topic", "")
        keywords = self._keywords.get(topic)
        if not keywords:
            return Score(0.0, Status.COULD_NOT_GRADE, f"no keywords for topic {topic!r}")
        words = set(re.findall(r"[a-z]+", sample.response.lower()))
        found = [keyword for keyword in keywords if keyword in words]
        return Score(len(found) / len(keywords), reason=f"mentions {', '.join(found) or 'none'}")
