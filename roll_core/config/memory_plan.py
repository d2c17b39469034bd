"""The memory that a run needs on each device and node, as `roll check` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roll_core.config.memory import Need
from roll_core.config.memory_devices import DeviceMemory, on_devices
from roll_core.config.memory_roles import role_need
from roll_core.config.pipeline import BaseConfig
from roll_core.config.resolution import kind_of_role
from roll_core.config.roles import WorkerConfig
from roll_core.platforms.base import Ability, Platform

GIB = 2**30
Places = Sequence[Sequence[tuple[int, int]]]
"""The devices of each worker of a role: node and number; empty for a plain process."""


@dataclass(frozen=True)
class RoleMemory:
    """What a role needs on each of its devices, for a model of how many parameters, and where that is known from."""

    role: str
    parameters: int | None
    source: str
    need: Need


@dataclass(frozen=True)
class MemoryPlan:
    """The estimate for a run.

    `devices` is empty where a device is only a process: all that counts there is `host_bytes`, the need of each
    node's main memory. `device_total` and `host_total` are what there is, where it is known.
    """

    roles: tuple[RoleMemory, ...]
    devices: tuple[DeviceMemory, ...]
    host_bytes: tuple[int, ...]
    is_host_known: bool
    device_total: int | None = None
    host_total: int | None = None

    def warnings(self) -> list[str]:
        """A sentence for each group of devices or node that will run out of memory, or may."""
        return [*self._device_warnings(), *self._host_warnings()]

    def _device_warnings(self) -> Iterator[str]:
        for group in self.devices:
            if self.device_total is None or group.verdict not in ("does not fit", "tight"):
                continue
            likely = "is likely" if group.verdict == "does not fit" else "is possible"
            at = f" ({group.phase})" if group.phase else ""
            yield (
                f"memory: running out of it {likely} on devices {span(group.devices)}: about "
                f"{group.known / GIB:.1f} GiB{at} of {self.device_total / GIB:.1f} GiB; offload_policy: true, smaller "
                "micro-batches, more devices or a smaller max_model_len need less"
            )

    def _host_warnings(self) -> Iterator[str]:
        for node, needed in enumerate(self.host_bytes):
            if self.host_total is not None and needed > self.host_total:
                yield (
                    f"memory: running out of it is likely on node {node}: about {needed / GIB:.1f} GiB of "
                    f"{self.host_total / GIB:.1f} GiB main memory"
                )


def plan_memory(
    config: BaseConfig,
    roles: Mapping[str, WorkerConfig],
    workers: Mapping[str, Places],
    platform: Platform | None,
    nodes: int,
    *,
    device_bytes: int | None,
    is_here: bool,
) -> MemoryPlan:
    """Estimate every role, then what meets on each device and node."""
    found: list[RoleMemory] = []
    for path, role in roles.items():
        size, need = role_need(config, path, role, device_bytes)
        found.append(RoleMemory(path, size.parameters, size.source, need))
    needs = {one.role: one.need for one in found}
    are_processes = platform is not None and platform.ray_resource == "CPU"
    devices: tuple[DeviceMemory, ...] = ()
    if not are_processes:
        placed = {path: [device for worker in places for _, device in worker] for path, places in workers.items()}
        devices = on_devices(
            needs,
            placed,
            [path for path in roles if kind_of_role(path) == "infer"],
            takes_turns=platform is None or Ability.SLEEP in platform.abilities(),
            device_bytes=device_bytes,
        )
    host = _host(needs, workers, nodes, are_processes=are_processes)
    known = not are_processes or all(need.peak is not None for need in needs.values())
    return MemoryPlan(tuple(found), devices, host, known, device_bytes, _main_memory() if is_here else None)


def span(numbers: Sequence[int]) -> str:
    """Numbers in ranges: 0-7, 12."""
    parts: list[str] = []
    start = 0
    for position in range(1, len(numbers) + 1):
        if position == len(numbers) or numbers[position] != numbers[position - 1] + 1:
            first, last = numbers[start], numbers[position - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = position
    return ", ".join(parts)


def _host(
    needs: Mapping[str, Need], workers: Mapping[str, Places], nodes: int, *, are_processes: bool
) -> tuple[int, ...]:
    """Main memory of each node: what offloading puts there, or everything where devices are processes."""
    totals = [0] * max(1, nodes)
    for path, places in workers.items():
        need = needs[path]
        each = need.host + ((need.peak or need.lasting) if are_processes else 0)
        for worker in places:
            # A process without a device goes where Ray likes; it is counted on the first node.
            node = worker[0][0] if worker else 0
            if node < len(totals):
                totals[node] += each
    return tuple(totals)


def _main_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().total)
