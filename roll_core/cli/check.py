"""`roll check`: what a config would do, and everything that is wrong with it, without starting anything."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from roll_core.config.compose import Reading
    from roll_core.config.plan import Plan, Request
    from roll_core.errors import Problem


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    config: Annotated[str, typer.Argument(help="A YAML file; relative to here or to examples/.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values to use.")] = None,
    platform: Annotated[str | None, typer.Option(help="Plan for this platform on other machines.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Plan for this many nodes.")] = None,
    devices_per_node: Annotated[int | None, typer.Option(min=1, help="Plan for so many devices per node.")] = None,
    device_memory: Annotated[str | None, typer.Option(help="Memory of one device, such as 64GiB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the plan of a run and every problem; exits 2 when there is one."""
    from roll_core.config.compose import read_config
    from roll_core.config.locate import find_file
    from roll_core.config.memory_devices import parse_size
    from roll_core.config.plan import Request

    device_bytes = parse_size(device_memory) if device_memory is not None else None
    reading = read_config(find_file(config), overrides or ())
    plan = _planned(reading, Request(platform, nodes, devices_per_node, device_bytes))
    problems = list(plan.problems) if plan is not None else reading.problems
    if as_json:
        print(json.dumps(_as_data(reading, plan, problems), indent=2))
    else:
        from roll_core.cli.plan_report import print_report

        print_report(reading, plan, problems)
    if problems:
        raise typer.Exit(2)


def _planned(reading: Reading, request: Request) -> Plan | None:
    from roll_core.config.planning import make_plan
    from roll_core.plugins import load_plugins

    if reading.config is None:
        return None
    earlier = [*reading.problems, *reading.rule_problems()]
    plan = make_plan(reading.config, load_plugins(), reading.pipeline, earlier, request)
    known = set(map(id, earlier))
    found = [problem for problem in plan.problems if id(problem) not in known]
    rules = [problem for problem in plan.problems if id(problem) in known and problem not in reading.problems]
    return replace(plan, problems=(*reading.problems, *reading.sound(found), *rules))


def _as_data(reading: Reading, plan: Plan | None, problems: list[Problem]) -> dict[str, object]:
    from dataclasses import asdict

    if plan is not None:
        return plan.as_data()
    return {"source": reading.source, "problems": [asdict(problem) for problem in problems]}
