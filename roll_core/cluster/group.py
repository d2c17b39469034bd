"""The workers of one role, called together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.cluster.nodes import Place
from roll_core.cluster.spec import WorkerSpec
from roll_core.errors import WorkerDied
from roll_core.platforms import Platform

RESTARTS = 3
"""How often a stateless worker is started again, and its calls repeated, before its death ends the run."""


@dataclass
class WorkerGroup:
    """Actors of one role, by rank. Ray restarts a stateless role's workers when they die, but not the others.

    `lost` are ranks that are known to be dead: calls of all ranks leave them out until `revive`.
    """

    role: str
    specs: list[WorkerSpec]
    handles: list[Any]
    restartable: bool = False
    watches: list[Call] = field(default_factory=list)
    start_one: Callable[[int], Any] | None = None
    lost: set[int] = field(default_factory=set)
    restarts: int = 0

    @classmethod
    def launch(
        cls,
        worker_class: type,
        specs: Sequence[WorkerSpec],
        places: Sequence[Place | None],
        platform: Platform,
        environment: Mapping[str, str],
        *,
        arguments: tuple[Any, ...] = (),
        restartable: bool = False,
        threads: int = 1,
    ) -> WorkerGroup:
        """Start one actor per spec, each seeing only its own devices; returns while they are still starting."""
        import ray

        def start_one(rank: int) -> Any:
            spec, place = specs[rank], places[rank]
            visible = platform.visible(place.device_ids) if place else {}
            options: dict[str, Any] = {
                "num_cpus": 0,
                "max_restarts": RESTARTS if restartable else 0,
                "max_task_retries": RESTARTS if restartable else 0,
                "max_concurrency": threads,
                "concurrency_groups": {"watch": 1},
                "runtime_env": {"env_vars": {**environment, **visible}},
            }
            if place is not None:
                options |= _options(platform, place)
            return ray.remote(**options)(worker_class).remote(spec, *arguments)

        handles = [start_one(rank) for rank in range(len(specs))]
        group = cls(specs[0].context.role, list(specs), handles, restartable, start_one=start_one)
        if not restartable:
            group.watches = [group._watch(rank) for rank in range(len(specs))]
        return group

    def find_lost(self) -> set[int]:
        """Look which watched workers have ended, and return all that are lost."""
        import ray

        by_ref = {call.ref: call.worker.context.rank for call in self.watches}
        if by_ref:
            ended, _ = ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0)
            self.lost |= {by_ref[ref] for ref in ended}
        return self.lost

    def revive(self) -> list[int]:
        """Start what was lost again, in its old place; returns the ranks, which have everything yet to be told.

        Raises:
            WorkerDied: that was done too often.
        """
        ranks = sorted(self.lost)
        if self.restarts + len(ranks) > RESTARTS:
            names = ", ".join(f"rank {rank}" for rank in ranks)
            raise WorkerDied(f"{self.role} {names} died, after {self.restarts} restarts of {self.role} in this run")
        assert self.start_one is not None
        for rank in ranks:
            self.handles[rank] = self.start_one(rank)
            self.watches[rank] = self._watch(rank)
        self.restarts += len(ranks)
        self.lost.clear()
        return ranks

    def link(self) -> WorkerGroup:
        """The same workers for another process, which calls them and neither starts nor ends them."""
        return WorkerGroup(self.role, self.specs, list(self.handles))

    def watch_all(self) -> None:
        """Learn of every worker's end, in the process that got a `link`."""
        self.watches = [self._watch(rank) for rank in range(len(self))]

    def follow(self, handles: Sequence[Any]) -> None:
        """Go on with these workers, all of which live: some may have been started again where this is a `link` to."""
        if list(handles) != self.handles or self.lost:
            self.handles = list(handles)
            self.lost.clear()
            self.watch_all()

    def kill(self) -> None:
        """End every process of the role, whatever it is doing."""
        import ray

        for handle in self.handles:
            ray.kill(handle)

    def _watch(self, rank: int) -> Call:
        watch = self.handles[rank].watch.options(concurrency_group="watch")
        return Call(self.specs[rank], "watch", watch.remote())

    def __len__(self) -> int:
        return len(self.handles)

    def submit(self, method: str, *arguments: Any, **options: Any) -> list[Call]:
        """Call every rank that is not lost with the same arguments, without waiting."""
        ranks = [rank for rank in range(len(self)) if rank not in self.lost]
        return [self.submit_to(rank, method, *arguments, **options) for rank in ranks]

    def submit_to(self, rank: int, method: str, *arguments: Any, **options: Any) -> Call:
        """Call one rank, without waiting."""
        return Call(self.specs[rank], method, getattr(self.handles[rank], method).remote(*arguments, **options))

    def submit_split(self, rank: int, method: str, *arguments: Any) -> tuple[Call, Call]:
        """Call one rank, without waiting, where the method returns two things: a call for each.

        What nobody waits for is not fetched; what was returned outlives the worker.
        """
        references = getattr(self.handles[rank], method).options(num_returns=2).remote(*arguments)
        first, second = (Call(self.specs[rank], method, reference) for reference in references)
        return first, second

    def scatter(self, method: str, parts: Sequence[Any], *arguments: Any) -> list[Call]:
        """Call rank k with part k first, without waiting."""
        return [self.submit_to(rank, method, part, *arguments) for rank, part in enumerate(parts)]


def _options(platform: Platform, place: Place) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A small share of a device per worker: several roles live on the same devices, and the ids are ours to set.
    share = platform.ray_options(0.01 * len(place.device_ids))
    return share | {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=place.node.node_id, soft=False)}
