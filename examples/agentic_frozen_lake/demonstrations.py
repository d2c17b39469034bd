"""Episodes on the ice as a careless walker plays them: what the tiny model copies before it learns by itself.

With probability `CARE` the walker steps towards the goal and around holes; else it steps at random. Neither the walker
nor the model remembers where it has been.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agentic_warm_start import Demonstration

from roll_core.envs.frozen_lake import ACTIONS, FrozenLake

CARE = 0.4
FIRST_SEED = 10**9
"""Seeds of demonstrations; those of a run's episodes are drawn elsewhere, so no lake of a validation is shown here."""


def make_lake() -> FrozenLake:
    """The lake that cpu.yaml describes."""
    return FrozenLake(
        size=4,
        p=0.6,
        is_slippery=False,
        min_distance=3,
        max_steps=8,
        observation="near",
        action_pattern="^(.*)$",
        env_instruction="",
    )


def careful(observation: str, choice: random.Random) -> str:
    """A step onto the goal or towards it, if a cell that way can be walked on; else any such cell."""
    first, second = observation.splitlines()
    words = second.split()
    kinds = dict(zip(words[::2], words[1::2]))
    for name, kind in kinds.items():
        if kind == "goal":
            return name
    free = [name for name, kind in kinds.items() if kind == "free"]
    nearer = [name for name in free if name.lower() in first.split()]
    return choice.choice(nearer or free or list(kinds))


def demonstrate(lake: FrozenLake, seed: int, care: float, choice: random.Random) -> Demonstration:
    """One episode."""
    observation, _ = lake.reset(seed)
    observations, actions, reward, is_over = [], [], 0.0, False
    while not is_over:
        is_careful = choice.random() < care
        action = careful(observation, choice) if is_careful else choice.choice(list(ACTIONS.values()))
        observations.append(observation)
        actions.append(action)
        observation, reward, terminated, truncated, _ = lake.step(action)
        is_over = terminated or truncated
    return Demonstration(tuple(observations), tuple(actions), ("user",) * len(actions), reward > 0)


def demonstrations(seed: int, care: float = CARE) -> Iterator[Demonstration]:
    """Episodes without end, the same for the same seed."""
    lake, choice = make_lake(), random.Random(seed)
    while True:
        yield demonstrate(lake, choice.randrange(FIRST_SEED, 2 * FIRST_SEED), care, choice)
