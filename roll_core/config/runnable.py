"""Whether a config can be run here, and everything that stands in the way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roll_core.config.compose import Reading
from roll_core.config.machine import files_problems, reward_problems
from roll_core.config.pipeline import BaseConfig
from roll_core.config.resolution import Resolution, platform_of, resolve_config, started_roles
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig
from roll_core.config.rules import problems_of
from roll_core.config.unavailable import unavailable_problems
from roll_core.config.validation import option_problems
from roll_core.errors import ConfigError, PluginError, Problem
from roll_core.platforms.base import Platform
from roll_core.plugins import Registry
from roll_core.resolve import Resolved


@dataclass(frozen=True)
class RunCheck:
    """What was found out about running a config; `platform` is None where its class cannot be had."""

    resolution: Resolution
    platform: Platform | None
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def check_run(
    config: BaseConfig,
    registry: Registry,
    environ: Mapping[str, str] = os.environ,
    *,
    planned: str | None = None,
    quick: bool = False,
) -> RunCheck:
    """Look for everything that keeps this config from running here. Starts nothing and imports no heavy library.

    Args:
        planned: plan for this platform on other machines; their files and devices are not looked at.
        quick: leave out what may take long, such as reading large data files row by row.
    """
    resolution = resolve_config(config, registry, environ, planned)
    problems = list(resolution.problems)
    platform: Platform | None = None
    if resolution.platform is not None:
        made = platform_of(resolution.platform)
        if isinstance(made, Problem):
            problems.append(made)
        else:
            platform = made
            problems += _platform_problems(config, resolution, made, is_here=planned is None)
    problems += unavailable_problems(config)
    problems += _tracker_problems(config, is_here=planned is None)
    if planned is None:
        problems += files_problems(config, quick=quick)
    elif isinstance(config, RLVRConfig):
        problems += reward_problems(config, is_here=False)
    unique = list({(problem.path, problem.rule): problem for problem in problems}.values())
    notices = list(resolution.notices)
    if planned is not None:
        # The question is what the config would do there, which what this version lacks does not answer.
        notices += [beyond(problem) for problem in unique if problem.is_not_built]
        unique = [problem for problem in unique if not problem.is_not_built]
    return RunCheck(resolution, platform, unique, notices)


def beyond(problem: Problem) -> str:
    """What a plan for other machines says of a key that asks for what this version lacks."""
    rule = " ".join(problem.rule.split())
    return (
        f"this version cannot run it: {problem.path}: {rule}" if problem.path else f"this version cannot run it: {rule}"
    )


def require_read(reading: Reading, registry: Registry, environ: Mapping[str, str] = os.environ) -> BaseConfig:
    """The config, if all of it could be read.

    Raises:
        ConfigError: with what could not be read, and everything else that is wrong, here and on any machine.
    """
    if reading.config is not None and not reading.problems:
        return reading.config
    problems = list(reading.problems)
    if reading.config is not None:
        found = reading.sound(check_run(reading.config, registry, environ, quick=True).problems)
        problems += merged(found, reading.rule_problems())
    raise ConfigError(problems, reading.source)


def require_runnable(config: BaseConfig, registry: Registry, environ: Mapping[str, str] = os.environ) -> RunCheck:
    """The check's result, if nothing is wrong at all.

    Raises:
        ConfigError: with every problem, those of any machine (`rules.problems_of`) after those of this one.
    """
    check = check_run(config, registry, environ)
    problems = merged(check.problems, problems_of(config))
    if problems:
        raise ConfigError(problems, config.source)
    return check


def merged(first: list[Problem], second: list[Problem]) -> list[Problem]:
    """Two lists of problems as one; a strategy may find again, in its own words, what a rule says of the same key."""
    taken = {problem.path for problem in second}
    is_value = {
        problem.path for problem in first if ".strategy_config." in problem.path or "microbatch" in problem.path
    }
    return [one for one in first if not (one.path in taken and one.path in is_value)] + second


def _platform_problems(
    config: BaseConfig, resolution: Resolution, platform: Platform, *, is_here: bool
) -> Iterator[Problem]:
    yield from platform.problems(config)
    for path, role in started_roles(config).items():
        if path not in resolution.strategies:
            continue
        try:
            strategy = resolution.strategies[path].load()
        except PluginError as error:
            yield Problem(f"{path}.strategy_args.strategy_name", str(error))
            continue
        here = resolution.strategies[path].availability()
        if is_here and not here.ok:
            hint = _install(resolution.strategies[path])
            yield Problem(f"{path}.strategy_args.strategy_name", here.reason, role.strategy_name, hint)
        yield from _strategy_problems(path, role, strategy, platform)
        is_written = path.partition(".")[0] in config.model_fields_set
        if is_written and not role.devices and platform.ray_resource != "CPU":
            hint = "device_mapping: list(range(0, 8))"
            yield Problem(f"{path}.device_mapping", f"must name devices on platform {platform.name}", None, hint)
    if is_here:
        yield from _visible(config, platform)


def _install(resolved: Resolved) -> str:
    extra = resolved.backend.extra
    return f'pip install "{resolved.record.dist}[{extra}]"' if extra else ""


def _strategy_problems(path: str, role: WorkerConfig, strategy: Any, platform: Platform) -> Iterator[Problem]:
    options = f"{path}.strategy_args.strategy_config"
    schema = getattr(strategy, "Config", None)
    wrong = option_problems(role.strategy_config, schema, options, role.strategy_name or "") if schema else []
    yield from wrong
    for problem in strategy.problems(role, platform):
        where = f"{path}.{problem.path}"
        # A strategy that validates its options by itself says the same again.
        if not (wrong and where.startswith(options)):
            yield replace(problem, path=where)


def _visible(config: BaseConfig, platform: Platform) -> Iterator[Problem]:
    """A single node whose visible devices are fewer than the config names, where that can be told without a device."""
    visible = platform.visible_ids()
    if visible is None or config.node_count > 1 or platform.ray_resource == "CPU":
        return
    for path, role in started_roles(config).items():
        outside = [device for device in role.devices if device >= len(visible)]
        if outside:
            rule = f"names device {max(outside)}, but only {len(visible)} devices are visible ({','.join(visible)})"
            hint = f"devices 0 to {len(visible) - 1}, or another {platform.visible_devices_env}"
            yield Problem(f"{path}.device_mapping", rule, None, hint)


def _tracker_problems(config: BaseConfig, *, is_here: bool) -> list[Problem]:
    from roll_core.trackers.opening import tracker_problems

    return tracker_problems(config.track_with, config.tracker_kwargs, is_here=is_here)
