"""Who is on which device, drawn node by node, and what they need there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_core.config.memory_plan import MemoryPlan, RoleMemory
    from roll_core.config.plan import Plan

GIB = 2**30
_NODES_DRAWN = 4
_HEADINGS = (
    "memory (GiB per device)",
    "parameters",
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "cache",
    "peak",
)


def device_map(plan: Plan) -> Iterator[str]:
    """A grid per node: a row per role, a column per device, in each cell the worker's rank; `.` where nobody is."""
    cells: dict[int, dict[str, dict[int, int]]] = {}
    for role in plan.roles:
        for worker in role.workers:
            for place in worker.devices:
                cells.setdefault(place.node, {}).setdefault(role.name, {})[place.local] = worker.rank
    nodes = sorted(cells)
    for node in nodes[:_NODES_DRAWN]:
        yield from _grid(node, cells[node], plan.cluster.devices_per_node)
    if len(nodes) > _NODES_DRAWN:
        yield f"and nodes {nodes[_NODES_DRAWN]} to {nodes[-1]}; --json lists them"


def _grid(node: int, roles: dict[str, dict[int, int]], per_node: int) -> Iterator[str]:
    columns = max(per_node, *(1 + max(cells) for cells in roles.values()))
    ranks = [str(rank) for cells in roles.values() for rank in cells.values()]
    width = 1 + max(len(text) for text in [*ranks, str(columns - 1)])
    title = f"node {node}"
    margin = max(len(name) for name in [*roles, title])
    yield f"{title:{margin}}  {''.join(f'{column:>{width}}' for column in range(columns))}   devices"
    for name, cells in roles.items():
        shown = "".join(f"{cells.get(column, '.'):>{width}}" for column in range(columns))
        yield f"{name:{margin}}  {shown}   ranks"


def memory_lines(memory: MemoryPlan) -> Iterator[str]:
    """The estimate: a line per role, a line per group of devices, and each node's main memory."""
    yield from _table([_HEADINGS, *(_cells(role) for role in memory.roles)])
    for source in dict.fromkeys(role.source for role in memory.roles):
        yield f"  model sizes: {source}"
    for role in memory.roles:
        for remark in role.need.remarks:
            if remark != role.source:
                yield f"  {role.role}: {remark}"
    for group in memory.devices:
        numbers, together = _span(group.devices), " + ".join(group.roles)
        total = "" if memory.device_total is None else f" of {_gib(memory.device_total)}"
        amount = f"at least {_gib(group.known)}" if group.peak is None else f"{_gib(group.peak)} ({group.phase})"
        yield f"  devices {numbers}: {together}: {amount}{total} GiB: {group.verdict}"
    if any(memory.host_bytes):
        total = "" if memory.host_total is None else f" of {_gib(memory.host_total)}"
        least = "" if memory.is_host_known else "at least "
        shown = ", ".join(f"node {node} {least}{_gib(needed)}" for node, needed in enumerate(memory.host_bytes))
        yield f"  main memory: {shown}{total} GiB"
    yield "  estimates of tensors, within about a fifth; what programs themselves take comes on top"


def _span(numbers: Sequence[int]) -> str:
    from roll_core.config.memory_plan import span

    return span(numbers)


def _cells(role: RoleMemory) -> tuple[str, ...]:
    need = role.need
    parts = (need.weights, need.gradients, need.optimizer, need.activations, need.cache, need.peak)
    size = "unknown" if role.parameters is None else f"{role.parameters / 1e9:.3g}e9"
    return (role.role, size, *("unknown" if part is None else _gib(part) for part in parts))


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (f"{cell:{'<' if column == 0 else '>'}{widths[column]}}" for column, cell in enumerate(row))
        yield "  ".join([first, *others])


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}" if size >= GIB / 20 or not size else f"{size / GIB:.4f}"
