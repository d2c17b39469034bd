"""Environments in Ray's workers: the same answers as beside the driver, and a worker that dies is counted."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.session import open_session
from roll_core.cluster.spec import WorkerSpec
from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.platforms.cpu import CpuPlatform
from roll_core.plugins import load_plugins
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.env_remote import ENV_THREADS, EnvWorker, RemoteEnvironments
from roll_core.rollout.environments import Act, Begin, Fault, Kind, Observed
from tests.rollout.test_env_pool import SOURCE

KINDS = ("fine", "reset")


@pytest.fixture
def kinds(tmp_path: Path) -> dict[str, Kind]:
    file = tmp_path / "counting.py"
    file.write_text(textwrap.dedent(SOURCE))
    return {name: Kind(f"{file}:Counting", {"trouble": name}) for name in KINDS}


@pytest.fixture
def remote(tmp_path: Path, kinds: dict[str, Kind]) -> Iterator[RemoteEnvironments]:
    with open_session(CpuPlatform()):
        specs = [
            WorkerSpec(
                context=WorkerContext(role="train_env_manager", rank=rank, world_size=2),
                role=WorkerConfig(),
                platform_target="roll_core.platforms.cpu:CpuPlatform",
                strategy_target="",
                plugins=load_plugins().fingerprint(),
                log_file=tmp_path / f"train_env_manager-{rank}.log",
                working_dir=tmp_path,
            )
            for rank in range(2)
        ]
        settings = {"num_processes": 1, "deadline_s": 60.0}
        group = WorkerGroup.launch(
            EnvWorker, specs, [None, None], CpuPlatform(), {}, arguments=(kinds, settings), threads=ENV_THREADS
        )
        environments = RemoteEnvironments(group)
        yield environments
        environments.close()


@pytest.mark.slow
def test_workers_answer_as_a_pool_does_and_the_death_of_one_is_a_fault_of_its_episodes(
    remote: RemoteEnvironments, kinds: dict[str, Kind]
) -> None:
    begins = [Begin(slot, "fine", 10 + slot) for slot in range(5)]
    acts = [Act(slot, f"a{slot}") for slot in range(5)]
    with EnvPool(kinds) as pool:
        expected = [pool.run(begins), pool.run(acts)]
    assert [remote.run(begins), remote.run(acts)] == expected
    [raised] = remote.run([Begin(7, "reset", 1)])
    assert isinstance(raised, Fault)
    assert raised.kind == "reset"
    assert remote.restarts == 0

    import ray

    pid = ray.get(remote.workers.submit_to(1, "facts").ref).pid
    os.kill(pid, signal.SIGKILL)
    answers = remote.run([Act(slot, "b") for slot in range(5)])
    assert [isinstance(answer, Fault) for answer in answers] == [False, True, False, True, False]
    assert answers[1] == Fault("crash", "environment worker 1 died, and the episode with it")
    assert remote.restarts == 1
    [again, other] = remote.run([Begin(1, "fine", 11), Act(0, "c")])
    assert isinstance(again, Observed)
    assert again.text == "11:0"
    assert isinstance(other, Observed)
    assert other.text == "10:0:a0,b,c"
