"""Environments in workers on any node of the cluster, each with a pool of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from roll_core.cluster.group import WorkerGroup
from roll_core.cluster.nodes import Place
from roll_core.cluster.spec import WorkerSpec
from roll_core.cluster.worker import Worker
from roll_core.objects import absolute_spec
from roll_core.platforms import Platform
from roll_core.rollout.env_pool import EnvPool
from roll_core.rollout.environments import Answer, Begin, Environments, Fault, Kind, Order

ENV_THREADS = 4
"""Calls an environment worker takes at once: orders, a wait for answers, and its end."""
_WAIT_S = 1.0
_GLANCE_S = 0.005


class EnvWorker(Worker):
    """A pool of environments in a process of the cluster, driven by a thread of its own."""

    def __init__(self, spec: WorkerSpec, kinds: Mapping[str, Kind], settings: Mapping[str, Any]) -> None:
        """`settings` are those of `EnvPool`."""
        super().__init__(spec)
        self.orders: SimpleQueue[Sequence[Order] | None] = SimpleQueue()
        self.answers: SimpleQueue[list[tuple[int, Answer]]] = SimpleQueue()
        self.restarts = 0
        self.thread = threading.Thread(target=self._drive, args=(EnvPool(kinds, **settings),), daemon=True)
        self.thread.start()

    def submit_orders(self, orders: Sequence[Order]) -> None:
        """Have orders carried out."""
        self.orders.put(orders)

    def next_answers(self) -> tuple[list[tuple[int, Answer]], int]:
        """Slots that have answered, perhaps none for a while, and how many processes were replaced so far."""
        found: list[tuple[int, Answer]] = []
        try:
            found += self.answers.get(timeout=_WAIT_S)
            while True:
                found += self.answers.get_nowait()
        except Empty:
            return found, self.restarts

    def close(self) -> None:
        """End all environments."""
        self.orders.put(None)
        self.thread.join()

    def _drive(self, pool: EnvPool) -> None:
        at_work = 0
        with pool:
            while True:
                try:
                    orders = self.orders.get(timeout=0.0 if at_work else _WAIT_S)
                    if orders is None:
                        return
                    pool.submit(orders)
                    at_work += len(orders)
                except Empty:
                    pass
                if at_work and (answers := pool.poll(_GLANCE_S)):
                    at_work -= len(answers)
                    self.restarts = pool.restarts
                    self.answers.put(answers)


@dataclass
class _Remote:
    """What is known of one worker: slots it is at, slots with an environment, and the wait for its answers."""

    at_work: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    waiting: Any = None
    restarts: int = 0


class RemoteEnvironments(Environments):
    """Environments of all workers of a group as one; slots are dealt to workers in turn.

    Where a worker dies, it is started again, and every episode that was played in it ends by a fault.
    """

    def __init__(self, workers: WorkerGroup) -> None:
        self.workers = workers
        self._remotes = [_Remote() for _ in range(len(workers))]
        self._answers: list[tuple[int, Answer]] = []
        self._lost = 0

    def submit(self, orders: Sequence[Order]) -> None:
        """Have orders carried out."""
        shares: dict[int, list[Order]] = {}
        for order in orders:
            rank, slot = order.slot % len(self.workers), order.slot // len(self.workers)
            remote = self._remotes[rank]
            if not isinstance(order, Begin) and slot not in remote.begun:
                self._answers.append((order.slot, _gone(rank)))
                continue
            remote.begun.add(slot)
            remote.at_work.add(slot)
            shares.setdefault(rank, []).append(replace(order, slot=slot))
        for rank, share in shares.items():
            self.workers.submit_to(rank, "submit_orders", share)
            self._listen(rank)

    def poll(self, seconds: float) -> list[tuple[int, Answer]]:
        """Slots that have answered, with their answers; waits at most so long for the first."""
        import ray
        from ray.exceptions import RayActorError

        waits = {remote.waiting: rank for rank, remote in enumerate(self._remotes) if remote.waiting is not None}
        if waits:
            ready, _ = ray.wait(list(waits), num_returns=len(waits), timeout=0.0 if self._answers else 0.0001)
            if not ready and not self._answers:
                ready, _ = ray.wait(list(waits), num_returns=1, timeout=seconds)
            for ref in ready:
                rank = waits[ref]
                self._remotes[rank].waiting = None
                try:
                    answers, restarts = ray.get(ref)
                except RayActorError:
                    self._replace(rank)
                    continue
                self._take(rank, answers, restarts)
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """End all workers. May be called again."""
        import ray

        calls = [self.workers.submit_to(rank, "close").ref for rank in range(len(self.workers))]
        ray.wait(calls, num_returns=len(calls), timeout=5.0)
        self.workers.kill()

    def _take(self, rank: int, answers: Sequence[tuple[int, Answer]], restarts: int) -> None:
        remote = self._remotes[rank]
        for slot, answer in answers:
            remote.at_work.discard(slot)
            if isinstance(answer, Fault):
                remote.begun.discard(slot)
            self._answers.append((slot * len(self.workers) + rank, answer))
        self.restarts += restarts - remote.restarts
        remote.restarts = restarts
        self._listen(rank)

    def _listen(self, rank: int) -> None:
        remote = self._remotes[rank]
        if remote.at_work and remote.waiting is None:
            remote.waiting = self.workers.submit_to(rank, "next_answers").ref

    def _replace(self, rank: int) -> None:
        remote, self._remotes[rank] = self._remotes[rank], _Remote()
        for slot in sorted(remote.at_work):
            self._answers.append((slot * len(self.workers) + rank, _gone(rank)))
        self.restarts += 1
        assert self.workers.start_one is not None
        self.workers.handles[rank] = self.workers.start_one(rank)


def _gone(rank: int) -> Fault:
    return Fault("crash", f"environment worker {rank} died, and the episode with it")


def launch_environments(
    specs: Sequence[WorkerSpec],
    places: Sequence[Place],
    platform: Platform,
    environment: Mapping[str, str],
    kinds: Mapping[str, Kind],
    settings: Mapping[str, Any],
) -> RemoteEnvironments:
    """Start a worker for each spec, in its place; `settings` are those of each worker's `EnvPool`."""
    # What names a file is meant as seen from here.
    kinds = {tag: replace(kind, spec=absolute_spec(kind.spec)) for tag, kind in kinds.items()}
    arguments = (kinds, dict(settings))
    group = WorkerGroup.launch(
        EnvWorker, specs, places, platform, environment, arguments=arguments, threads=ENV_THREADS
    )
    return RemoteEnvironments(group)
