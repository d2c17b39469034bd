"""Which node holds which device: the map from a config's device numbers to processes' visible devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roll_core.errors import RollError
from roll_core.platforms import Platform


@dataclass(frozen=True)
class Node:
    """A machine of the cluster and the ids of the devices it offers, as opaque text, in order."""

    node_id: str
    address: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where one worker runs, and the device ids it may see."""

    node: Node
    device_ids: tuple[str, ...]


def cluster_nodes(platform: Platform, num_nodes: int, devices_per_node: int | None) -> list[Node]:
    """The nodes a run uses, the driver's first, the others by address.

    Raises:
        RollError: too few nodes with enough devices; the message lists what each node has.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    alive = sorted(
        (node for node in ray.nodes() if node["Alive"]),
        key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"]),
    )
    wanted = devices_per_node or platform.device_count()
    if platform.ray_resource == "CPU":
        usable = [_processes(node, wanted) for node in alive]
    else:
        usable = [_devices(node, platform) for node in alive if _has(node, platform, wanted)]
    if len(usable) < num_nodes:
        raise RollError(_too_few(platform, alive, num_nodes, wanted))
    return usable[:num_nodes]


def own_place() -> Place:
    """This process's node, without devices."""
    import ray

    return Place(Node(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), ()), ())


def place(devices: Sequence[int], per_worker: int, nodes: Sequence[Node]) -> list[Place]:
    """Worker k gets devices [k * per_worker, (k + 1) * per_worker) of the list; device g is on node g // per node.

    Raises:
        RollError: a device that no node has, or a worker whose devices are on two nodes.
    """
    per_node = len(nodes[0].device_ids)
    places = []
    for start in range(0, len(devices), per_worker):
        chosen = devices[start : start + per_worker]
        homes = {device // per_node for device in chosen}
        if max(homes) >= len(nodes):
            raise RollError(f"device {max(chosen)} asked for, but {len(nodes)} x {per_node} devices are there")
        if len(homes) > 1:
            raise RollError(f"devices {list(chosen)} of one worker are on {len(homes)} nodes of {per_node} devices")
        node = nodes[homes.pop()]
        places.append(Place(node, tuple(node.device_ids[device % per_node] for device in chosen)))
    return places


def _processes(node: dict[str, Any], count: int) -> Node:
    return Node(node["NodeID"], node["NodeManagerAddress"], tuple(str(index) for index in range(count)))


def _has(node: dict[str, Any], platform: Platform, wanted: int) -> bool:
    return bool(node["Resources"].get(platform.ray_resource, 0) >= wanted)


def _devices(node: dict[str, Any], platform: Platform) -> Node:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The variable as the node's own processes see it; without one, ids are simply counted.
    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
    def visible(name: str, aliases: tuple[str, ...]) -> str | None:
        import os

        return next((os.environ[key] for key in (name, *aliases) if key and key in os.environ), None)

    strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    task = visible.options(scheduling_strategy=strategy)
    text = ray.get(task.remote(platform.visible_devices_env, platform.visible_devices_aliases), timeout=60)
    count = int(node["Resources"][platform.ray_resource])
    ids = [part.strip() for part in text.split(",") if part.strip()] if text else [str(i) for i in range(count)]
    return Node(node["NodeID"], node["NodeManagerAddress"], tuple(ids))


def _too_few(platform: Platform, alive: Sequence[dict[str, Any]], num_nodes: int, wanted: int) -> str:
    key = platform.ray_resource
    lines = [f"need {num_nodes} nodes with {wanted} {key} each, the cluster has"]
    for node in alive:
        has = node["Resources"].get(key, 0)
        verdict = "enough" if has >= wanted else f"{has:g} < {wanted}"
        lines.append(f"  {node['NodeManagerAddress']}: {key} {has:g} ({verdict})")
    lines.append("  try: num_nodes and num_gpus_per_node that match, or `ray status` on the missing nodes")
    return "\n".join(lines)
