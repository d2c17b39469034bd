"""Many environments at once: a thread each, in few processes, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from roll_core.inference import SamplingParams
from roll_core.rollout.env_async_collector import AsyncEnvCollector
from roll_core.rollout.env_episode import Episode, Style
from roll_core.rollout.env_flow import EpisodeFlow, GroupShape
from roll_core.rollout.env_groups import GroupOrder
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.environments import Kind
from tests.rollout.dialogues import byte_dialogue
from tests.rollout.test_env_flow import Talkers
from tests.rollout.test_flow import Waiter

PROCESSES = 4
MEGABYTE = 2**20


def play(num_groups: int, size: int, steps: int) -> tuple[list[Sequence[Episode]], int, int]:
    """Episodes of each step, the most memory of all processes in bytes, and the most threads of one."""
    kind = Kind("frozen_lake", {"is_slippery": False, "max_steps": 5})
    pool = EnvPool({"A": kind}, PROCESSES, deadline_s=300.0)
    engines: Any = Talkers(2)
    waiter: Any = Waiter(engines)
    flow = EpisodeFlow(
        engines,
        waiter,
        pool,
        byte_dialogue(),
        {"A": Style("A", max_steps=5)},
        3,
        GroupOrder(["A"] * num_groups, 7, "train"),
        SamplingParams(2),
        GroupShape(size, at_once=num_groups),
    )
    collector = AsyncEnvCollector(flow, num_groups, 0.0)
    played: list[Sequence[Episode]] = []
    memory = threads = 0
    try:
        for step in range(1, steps + 1):
            with collector.paused():
                collector.weights_are(step - 1)
            played.append(collector(step)[0])
            processes = [psutil.Process(child.process.pid) for child in pool._children.values()]
            memory = max(memory, sum(process.memory_info().rss for process in processes))
            threads = max(threads, *(process.num_threads() for process in processes))
        assert flow._num_slots == num_groups * size, "environments are not used again"
    finally:
        collector.close()
    return played, memory, threads


def check(played: list[Sequence[Episode]], count: int) -> None:
    for episodes in played:
        assert len(episodes) == count
        assert {one.end for one in episodes} <= {"terminated", "truncated", "max_steps"}
    seeds = [{one.plan.seed for one in episodes} for episodes in played]
    assert len(set.union(*seeds)) == sum(len(each) for each in seeds), "a lake was played in twice"


def test_two_hundred_environments_share_a_few_processes() -> None:
    played, memory, threads = play(25, 8, 2)
    check(played, 200)
    assert threads >= 200 // PROCESSES
    assert memory < PROCESSES * 200 * MEGABYTE


@pytest.mark.slow
def test_a_thousand_environments_play_a_step_in_bounded_memory() -> None:
    start = time.monotonic()
    played, memory, threads = play(125, 8, 3)
    check(played, 1000)
    print(
        f"3 steps of 1000 environments in {PROCESSES} processes: {time.monotonic() - start:.1f} s, "
        f"{memory / MEGABYTE:.0f} MB, {threads} threads in one"
    )
    assert memory < PROCESSES * 300 * MEGABYTE
