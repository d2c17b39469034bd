"""What is decided before a run: the platform, the class of every role; all reasons why it cannot run, together."""

from __future__ import annotations

from pathlib import Path

from roll_core.backend import Kind
from roll_core.config.rules import problems_of
from roll_core.config.schema import RLVRConfig, WorkerConfig
from roll_core.errors import ConfigError, PluginError, Problem
from roll_core.pipelines.launch import Setting, reference_of
from roll_core.platforms import Platform
from roll_core.plugins import Registry, load_plugins
from roll_core.resolve import Resolved, resolve_backend, resolve_platform

KINDS: dict[str, Kind] = {"actor_train": "train", "reference": "train", "critic": "train"}
"""Seam that serves a role; every other role with a strategy generates."""


def decide(config: RLVRConfig, registry: Registry | None = None) -> Setting:
    """The setting of a run.

    Raises:
        PluginError: no platform, or none that is certain.
        ConfigError: with everything that cannot work here, before any worker starts.
    """
    registry = registry or load_plugins()
    resolved = resolve_platform(registry, config.platform)
    platform = resolved.create()
    strategies, problems = resolve_strategies(config, registry, platform)
    problems = [*problems_of(config), *problems, *platform.problems(config)]
    if problems:
        raise ConfigError(problems, config.source)
    log_dir = Path(config.logging_dir).absolute() / config.exp_name
    return Setting(config, platform, resolved, strategies, registry.fingerprint(), log_dir)


def resolve_strategies(
    config: RLVRConfig, registry: Registry, platform: Platform
) -> tuple[dict[str, Resolved], list[Problem]]:
    """The strategy of every role that has one, and what is wrong with the others or with their options."""
    found: dict[str, Resolved] = {}
    problems: list[Problem] = []
    for name, role in roles_with_strategies(config).items():
        path = f"{name}.strategy_args.strategy_name"
        kind: Kind = KINDS.get(name, "infer")
        wanted = role.strategy_args.strategy_name if role.strategy_args is not None else "fsdp2_train"
        try:
            resolved = resolve_backend(registry, kind, wanted, platform.name)
            problems += [
                Problem(f"{name}.{problem.path}", problem.rule, problem.value, problem.hint)
                for problem in resolved.load().problems(role, platform)
            ]
            found[name] = resolved
        except PluginError as error:
            rule, _, hint = str(error).partition("\n")
            problems.append(Problem(path, rule, hint=" ".join(hint.split())))
    return found, problems


def roles_with_strategies(config: RLVRConfig) -> dict[str, WorkerConfig]:
    """Roles of an RLVR run that load a model."""
    roles = {"actor_train": config.actor_train, "actor_infer": config.actor_infer}
    if config.needs_reference:
        roles["reference"] = config.reference or reference_of(config)
    if config.needs_critic and config.critic is not None:
        roles["critic"] = config.critic
    return roles
