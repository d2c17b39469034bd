"""A plan as tables and lines for a terminal, a file or a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roll_core.cli.plan_drawing import device_map, memory_lines

if TYPE_CHECKING:
    from roll_core.config.compose import Reading
    from roll_core.config.environment import Variable
    from roll_core.config.plan import Plan, RolePlan, WorkerPlan
    from roll_core.errors import Problem

_PIPE_WIDTH = 140


def print_report(reading: Reading, plan: Plan | None, problems: list[Problem]) -> None:
    """Print the plan if there is one, then notices, then all problems, then a line that says how it ended."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    if plan is not None:
        _print_plan(console, plan)
        for notice in plan.notices:
            _line(console, f"note: {notice}", "yellow")
    for problem in problems:
        _line(console, f"- {problem}", "red")
    count = len(problems)
    if count:
        _line(console, f"{count} problem{'s' if count != 1 else ''} in {reading.source}", "bold red")
    else:
        _line(console, f"no problems in {reading.source}", "bold green")


def _print_plan(console: Console, plan: Plan) -> None:
    reasons = f" ({'; '.join(plan.platform_reasons)})" if plan.platform_reasons else ""
    cluster = plan.cluster
    _line(console, f"pipeline  {plan.pipeline}")
    _line(console, f"platform  {plan.platform}{reasons}")
    _line(
        console,
        f"cluster   {cluster.nodes} node{'s' if cluster.nodes != 1 else ''} ({cluster.nodes_source}) with "
        f"{cluster.devices_per_node} device{'s' if cluster.devices_per_node != 1 else ''} each "
        f"({cluster.devices_source})",
    )
    for line in _batch_lines(plan):
        _line(console, line)
    if plan.roles:
        console.print(_roles_table(plan))
    for line in device_map(plan):
        _line(console, line)
    if plan.memory is not None and plan.memory.roles:
        for line in memory_lines(plan.memory):
            _line(console, line)
    if any(role.environment for role in plan.roles):
        console.print(_environment_table(plan))


def _batch_lines(plan: Plan) -> Iterator[str]:
    for name, batch in plan.batches.items():
        uneven = "" if batch.is_even else " (the last one short)"
        yield (
            f"batch     {name}: {batch.prompts} prompts * {batch.responses_per_prompt} = {batch.samples} responses; "
            f"{batch.mini_batches} mini-batch{'es' if batch.mini_batches != 1 else ''} of {batch.mini_batch}{uneven} "
            f"({batch.ranks} ranks * {batch.rows} rows * {batch.accumulation} micro-batches); "
            f"{batch.optimizer_steps} optimiser step{'s' if batch.optimizer_steps != 1 else ''} per step"
        )
    if plan.rollout is not None:
        one = plan.rollout
        yield f"rollout   {one.num_steps} steps of {one.per_step} {one.noun} * {one.samples}; nothing is trained"
    if plan.rows is not None:
        epoch = "" if plan.steps_per_epoch is None else f", {plan.steps_per_epoch} steps per epoch"
        yield f"data      {plan.rows} rows{epoch}"


def _roles_table(plan: Plan) -> Table:
    table = Table(title="roles", title_justify="left", show_edge=False)
    for heading in ("role", "strategy", "from", "class", "workers", "devices by node"):
        table.add_column(heading, overflow="fold")
    for role in plan.roles:
        table.add_row(
            role.name,
            role.strategy or "-",
            role.provider or "-",
            role.target or "-",
            str(len(role.workers)),
            _map(role),
        )
    return table


def _map(role: RolePlan) -> str:
    """Devices of each node, workers apart: `node 0: 0,1 | 2,3`."""
    by_node: dict[int, list[str]] = {}
    for worker in role.workers:
        for node, shown in _by_node(worker).items():
            by_node.setdefault(node, []).append(shown)
    if not by_node:
        return "no devices"
    return "\n".join(f"node {node}: {_folded(groups)}" for node, groups in sorted(by_node.items()))


def _by_node(worker: WorkerPlan) -> dict[int, str]:
    places: dict[int, list[int]] = {}
    for place in worker.devices:
        places.setdefault(place.node, []).append(place.local)
    return {node: ",".join(map(str, locals_)) for node, locals_ in places.items()}


def _folded(groups: list[str]) -> str:
    if all(group.isdigit() for group in groups):
        numbers = [int(group) for group in groups]
        if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{numbers[0]}-{numbers[-1]}"
    return " | ".join(groups)


def _environment_table(plan: Plan) -> Table:
    table = Table(title="environment", title_justify="left", show_edge=False)
    for heading in ("variable", "value", "set by", "roles"):
        table.add_column(heading, overflow="fold")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for role in plan.roles:
        for name, variable in role.environment.items():
            rows.setdefault(_key(name, variable), []).append(role.name)
    everybody = len(plan.roles)
    for (name, value, source), roles in sorted(rows.items()):
        table.add_row(name, value, source, "all" if len(roles) == everybody else ", ".join(roles))
    return table


def _key(name: str, variable: Variable) -> tuple[str, str, str]:
    return name, variable.value, variable.source


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
