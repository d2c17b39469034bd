"""A worker that fails in every way a test needs."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.worker import Worker
from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.errors import CheckpointError
from roll_core.platforms.cpu import CpuPlatform
from roll_core.plugins import load_plugins


class Probe(Worker):
    def add(self, number: int) -> int:
        return self.spec.context.rank + number

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def fail(self) -> None:
        raise ValueError("the moon is in the wrong place")

    def refuse(self) -> None:
        raise CheckpointError("that checkpoint is torn")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def notice_a_dead_peer(self, after_s: float) -> None:
        time.sleep(after_s)
        raise RuntimeError("connection closed by peer")

    def hang(self) -> None:
        time.sleep(600)

    def count(self, number: int) -> Iterator[int]:
        for item in range(number):  # noqa: UP028  Ray needs a generator of its own here.
            yield item

    def where(self) -> str:
        return str(Path.cwd())

    def pid(self) -> int:
        return os.getpid()


def probes(folder: Path, number: int, *, role: str = "actor_train", restartable: bool = False) -> WorkerGroup:
    specs = [
        WorkerSpec(
            context=WorkerContext(role=role, rank=rank, world_size=number),
            role=WorkerConfig(),
            platform_target="roll_core.platforms.cpu:CpuPlatform",
            strategy_target="",
            plugins=load_plugins().fingerprint(),
            log_file=folder / f"{role}-{rank}.log",
            working_dir=folder,
        )
        for rank in range(number)
    ]
    return WorkerGroup.launch(
        Probe,
        specs,
        [None] * number,
        CpuPlatform(),
        {"OMP_NUM_THREADS": "1", "FLAVOUR": "mint"},
        restartable=restartable,
    )
