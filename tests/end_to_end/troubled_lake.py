"""Frozen lakes with every kind of trouble that an environment can make."""

import contextlib
import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

from roll_core.envs.frozen_lake import FrozenLake

Stepped = tuple[str, float, bool, bool, dict[str, Any]]
FAULTS = ("reset", "step", "not_finite", "too_long", "crash", "hang")
"""What a run counts, by the names of its metrics."""


class TroubledLake(FrozenLake):
    """Makes each kind of trouble once in a run: whoever makes its file in the folder `troubles` first has it."""

    def __init__(self, troubles: str, **options: Any) -> None:
        super().__init__(**options)
        self.troubles = Path(troubles)

    def has(self, kind: str) -> bool:
        try:
            (self.troubles / kind).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        if self.has("reset"):
            raise RuntimeError("no lake")
        return super().reset(seed)

    def step(self, action: str) -> Stepped:
        result = super().step(action)
        # What others did in the instant of a crash would be lost with their process, and be played again untroubled.
        hang = self.troubles / "hang"
        is_quiet = hang.exists() and time.time() - hang.stat().st_mtime > 3
        kind = next((kind for kind in FAULTS[1:] if (is_quiet or kind != "crash") and self.has(kind)), "")
        return trouble(kind, result)


class UnluckyLake(FrozenLake):
    """Makes trouble now and then, where the seed and the number of the step say so."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        self.luck_seed, self.steps_done = seed, 0
        if seed % 16 == 0:
            raise RuntimeError("no lake")
        return super().reset(seed)

    def step(self, action: str) -> Stepped:
        self.steps_done += 1
        luck = random.Random(f"{self.luck_seed}/{self.steps_done}").random()
        result = super().step(action)
        return trouble(FAULTS[1 + int(luck / 0.03)] if luck < 0.12 else "", result)


def trouble(kind: str, result: Stepped) -> Stepped:
    if kind == "step":
        raise RuntimeError("thin ice")
    if kind == "not_finite":
        return (result[0], float("nan"), *result[2:])
    if kind == "too_long":
        return ("x" * 1_000_000, *result[1:])
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(3600)
    return result


class EngineKiller(FrozenLake):
    """Kills an engine, as kill -9 would, at the first step that any environment of a run takes."""

    def __init__(self, engine_log: str, killed: str, **options: Any) -> None:
        super().__init__(**options)
        self.engine_log, self.killed = Path(engine_log), Path(killed)

    def step(self, action: str) -> Stepped:
        with contextlib.suppress(FileExistsError):
            self.killed.touch(exist_ok=False)
            os.kill(int(re.findall(r"process (\d+) on", self.engine_log.read_text())[-1]), signal.SIGKILL)
        return super().step(action)
