"""Rewards that do what they should not, each when the response says so."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from roll_core.rewards import Reward, RewardSample, Score, Status

GARBAGE: dict[str, Any] = {
    "None": None,
    "NaN": math.nan,
    "infinity": math.inf,
    "text": "0.5",
    "True": True,
    "list": [0.5],
    "above": 1.5,
    "below": -0.1,
    "score NaN": Score(math.nan),
    "score True": Score(True),
    "score text": Score("0.5"),  # type: ignore[arg-type]
    "status": Score(0.5, "fine"),  # type: ignore[arg-type]
    "reason": Score(0.5, reason=None),  # type: ignore[arg-type]
    "reward NaN": Score(0.5, reward=math.nan),
}


def garbage(sample: RewardSample) -> Any:
    return GARBAGE[sample.response]


def misbehaves(sample: RewardSample) -> float:
    response = sample.response
    if response == "hang":
        while True:
            pass
    if response == "sleep":
        time.sleep(1000)
    if response == "exit":
        os._exit(3)
    if response == "sys.exit":
        raise SystemExit(4)
    if response == "segfault":
        ctypes.string_at(0)
    if response == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if response == "memory":
        return float(len(bytearray(1 << 40)))
    if response == "raise":
        raise ValueError("this is the matter")
    if response == "offspring":
        child = subprocess.Popen(["sleep", "1000"])
        Path(sample.prompt).write_text(str(child.pid))
        time.sleep(1000)
    return 1.0


def says_pid(sample: RewardSample) -> Score:
    Path(sample.prompt).write_text(str(os.getpid()))
    if sample.response == "hang":
        while True:
            pass
    return Score(1.0, reason=str(os.getpid()))


def prints(sample: RewardSample) -> float:
    print("printed by the reward")
    return 0.5


class Halves(Reward):
    """Half of what its option says."""

    def __init__(self, whole: float) -> None:
        self.whole = whole
        self.is_warm = False

    def warm_up(self) -> None:
        self.is_warm = True

    def score(self, sample: RewardSample) -> Score:
        return Score(self.whole / 2, reward=self.whole) if self.is_warm else Score(0.0, Status.ERROR, "cold")


class FailsSelfTest(Reward):
    @classmethod
    def self_test(cls) -> list[str]:
        return ["two and two are five here"]

    def score(self, sample: RewardSample) -> Score:
        return Score(1.0)


NOT_A_REWARD = 3


def meets(sample: RewardSample) -> float:
    """A sample that waits has its score once the one that comes has; every sample takes a while."""
    met = Path(sample.ground_truth)
    time.sleep(0.1)
    if sample.response == "come":
        met.touch()
    while sample.response == "wait" and not met.exists():
        time.sleep(0.02)
    return 1.0
