"""The workers of one role, called together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.cluster.nodes import Place
from roll_core.cluster.spec import WorkerSpec
from roll_core.platforms import Platform

RESTARTS = 3
"""How often a stateless worker is started again, and its calls repeated, before its death ends the run."""


@dataclass
class WorkerGroup:
    """Actors of one role, by rank. A stateless role's workers are restarted when they die, the others are not."""

    role: str
    specs: list[WorkerSpec]
    handles: list[Any]
    restartable: bool = False
    watches: list[Call] = field(default_factory=list)

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

        handles = []
        for spec, place in zip(specs, places):
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
            handle = ray.remote(**options)(worker_class).remote(spec, *arguments)
            handles.append(handle)
        group = cls(specs[0].context.role, list(specs), handles, restartable)
        if not restartable:
            group.watches = [
                Call(spec, "watch", handle.watch.options(concurrency_group="watch").remote())
                for spec, handle in zip(specs, handles)
            ]
        return group

    def __len__(self) -> int:
        return len(self.handles)

    def submit(self, method: str, *arguments: Any, **options: Any) -> list[Call]:
        """Call every rank with the same arguments, without waiting."""
        return [self.submit_to(rank, method, *arguments, **options) for rank in range(len(self))]

    def submit_to(self, rank: int, method: str, *arguments: Any, **options: Any) -> Call:
        """Call one rank, without waiting."""
        return Call(self.specs[rank], method, getattr(self.handles[rank], method).remote(*arguments, **options))

    def scatter(self, method: str, parts: Sequence[Any], *arguments: Any) -> list[Call]:
        """Call rank k with part k first, without waiting."""
        return [self.submit_to(rank, method, part, *arguments) for rank, part in enumerate(parts)]


def _options(platform: Platform, place: Place) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A small share of a device per worker: several roles live on the same devices, and the ids are ours to set.
    share = platform.ray_options(0.01 * len(place.device_ids))
    return share | {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=place.node.node_id, soft=False)}
