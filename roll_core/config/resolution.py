"""Which classes a config's names stand for here: the platform, a strategy for each role, the transport."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from roll_core import names
from roll_core.backend import NOUN_OF_KIND, Kind
from roll_core.config.agentic import AgenticConfig
from roll_core.config.judges import judge_engines
from roll_core.config.pipeline import BaseConfig
from roll_core.config.policy import PPOConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig
from roll_core.errors import PluginError, Problem
from roll_core.platforms.base import Platform
from roll_core.plugins import Registry, same_name
from roll_core.resolve import Resolved, ResolvedPlatform, resolve_backend, resolve_platform

_OTHER_KIND: dict[Kind, Kind] = {"train": "infer", "infer": "train"}
_DEFAULT_STRATEGY: dict[Kind, str] = {"train": "fsdp2_train", "infer": ""}


@dataclass(frozen=True)
class Resolution:
    """What was found. `platform` is None where none could be decided; `strategies` has the roles that found one."""

    platform: ResolvedPlatform | None
    strategies: dict[str, Resolved] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def resolve_config(
    config: BaseConfig, registry: Registry, environ: Mapping[str, str] = os.environ, planned: str | None = None
) -> Resolution:
    """Find everything a config names. Nothing is started.

    Args:
        planned: a platform to plan for; it need not have a device here.
    """
    problems: list[Problem] = []
    notices: list[str] = []
    platform: ResolvedPlatform | None = None
    try:
        platform = _planned(registry, planned) if planned else resolve_platform(registry, config.platform, environ)
    except PluginError as error:
        problems.append(_from_error("platform", error))
    if platform is not None:
        found, said = _foreign_variables(config, registry, platform, planned is not None)
        problems, notices = problems + found, notices + said
    name = platform.name if platform is not None else planned or config.platform or ""
    strategies: dict[str, Resolved] = {}
    for path, role in started_roles(config).items():
        kind = kind_of_role(path)
        asked = role.strategy_name or _DEFAULT_STRATEGY[kind]
        if not asked:
            problems += _nothing_asked(config, registry, path)
            continue
        try:
            strategies[path] = resolve_backend(registry, kind, asked, name)
        except PluginError as error:
            problems.append(_strategy_problem(registry, path, kind, asked, name, error))
    return Resolution(platform, strategies, problems + list(_transport(config, registry, name)), notices)


def started_roles(config: BaseConfig) -> dict[str, WorkerConfig]:
    """Roles with a strategy whose workers a run starts, by path."""
    if not isinstance(config, RLVRConfig | AgenticConfig):
        return {path: role for path, role in config.roles().items() if role.strategy_args is not None}
    roles: dict[str, WorkerConfig] = {"actor_infer": config.actor_infer}
    if not config.is_rollout_only:
        roles = {"actor_train": config.actor_train} | roles | _beside_the_actor(config)
    if isinstance(config, AgenticConfig):
        return roles
    return roles | {path: judge for path, judge in judge_engines(config).items() if judge.strategy_args}


def _beside_the_actor(config: PPOConfig) -> dict[str, WorkerConfig]:
    roles: dict[str, WorkerConfig] = {}
    if config.needs_reference:
        roles["reference"] = config.reference or reference_of(config)
    if config.needs_critic and config.critic is not None:
        roles["critic"] = config.critic
    return roles


def reference_of(config: PPOConfig) -> WorkerConfig:
    """A reference that the config needs and does not describe: the actor's model, placed and sharded like it."""
    actor = config.actor_train
    strategy = actor.strategy_args
    if strategy is not None:
        name = strategy.strategy_name.replace("_train", "_infer")
        strategy = strategy.model_copy(update={"strategy_name": name})
    return actor.model_copy(update={"name": "reference", "strategy_args": strategy})


def kind_of_role(path: str) -> Kind:
    """Whether a role's strategy trains and scores, or generates."""
    is_engine = path.endswith("_infer") or path.startswith("rewards.") or path in ("reward_model", "reward")
    return "infer" if is_engine else "train"


def platform_of(resolved: ResolvedPlatform) -> Platform | Problem:
    """The platform's object, or why its class cannot be had."""
    try:
        return resolved.create()
    except PluginError as error:
        return _from_error("platform", error)


def _planned(registry: Registry, name: str) -> ResolvedPlatform:
    resolved = resolve_backend(registry, "platform", name)
    return ResolvedPlatform(resolved.backend.name, "config", ("asked for by --platform",), resolved)


def _nothing_asked(config: BaseConfig, registry: Registry, path: str) -> Iterator[Problem]:
    """An engine has no default; a section that is missing altogether is reported by a rule."""
    if path in config.model_fields_set:
        offered = dict.fromkeys(backend.name for _, backend in registry.offers("infer"))
        yield Problem(f"{path}.strategy_args.strategy_name", "must be given", None, f"one of: {', '.join(offered)}")


def _strategy_problem(
    registry: Registry, path: str, kind: Kind, asked: str, platform: str, error: PluginError
) -> Problem:
    other = _OTHER_KIND[kind]
    if any(backend.name == asked for _, backend in registry.offers(other)):
        noun = "trains or scores" if kind == "train" else "generates"
        rule = f"'{asked}' is an {NOUN_OF_KIND[other]}" if other == "infer" else f"'{asked}' is a {NOUN_OF_KIND[other]}"
        fitting = dict.fromkeys(backend.name for _, backend in registry.offers(kind))
        return Problem(
            f"{path}.strategy_args.strategy_name",
            f"{rule}, and {path} {noun}",
            None,
            f"one of: {', '.join(fitting)}",
        )
    return _from_error(f"{path}.strategy_args.strategy_name", error)


def _from_error(path: str, error: PluginError) -> Problem:
    lines = [line.strip() for line in str(error).splitlines()]
    advice = [line.removeprefix("try: ") for line in lines if line.startswith("try: ")]
    facts = [line for line in lines if not line.startswith("try: ")]
    return Problem(path, "\n    ".join(facts), None, "; ".join(advice))


def _transport(config: BaseConfig, registry: Registry, platform: str) -> Iterator[Problem]:
    backend = config.transfer_backend
    if backend is None or backend.backend_name is None:
        return
    try:
        resolve_backend(registry, "transport", backend.backend_name, platform)
    except PluginError as error:
        yield _from_error("transfer_backend.backend_name", error)


def _foreign_variables(
    config: BaseConfig, registry: Registry, platform: ResolvedPlatform, is_planned: bool
) -> tuple[list[Problem], list[str]]:
    """Variables in system_envs that another platform reads: the config was written for that one."""
    foreign: dict[str, list[str]] = {}
    for variable in _variables(config):
        readers = names.platforms_of_variable(variable)
        if readers and platform.name not in readers:
            foreign.setdefault(readers[0], []).append(variable)
    if not foreign:
        return [], []
    if is_planned or platform.source != "detection":
        said = [
            f"system_envs: {', '.join(variables)} {_belong(variables)} to platform {name}; platform {platform.name} "
            "does not read them"
            for name, variables in foreign.items()
        ]
        return [], said
    needed = max(foreign, key=lambda name: len(foreign[name]))
    return [_wrong_machine(config, registry, platform, needed, foreign[needed])], []


def _variables(config: BaseConfig) -> list[str]:
    named = dict.fromkeys(config.system_envs)
    for role in config.roles().values():
        named |= dict.fromkeys(role.system_envs)
    return list(named)


def _belong(variables: list[str]) -> str:
    return "belongs" if len(variables) == 1 else "belong"


def _wrong_machine(
    config: BaseConfig, registry: Registry, platform: ResolvedPlatform, needed: str, variables: list[str]
) -> Problem:
    package = names.package_of("platform", needed)
    devices = {device for role in config.roles().values() for device in role.devices}
    state, install = _package_state(registry, package)
    count = f", {len(devices)} devices" if devices else ""
    rule = "\n    ".join(
        [
            f"this config is written for platform {needed}: its system_envs set {', '.join(variables)}",
            f"needs: platform {needed}, package {package} ({state}){count}",
            f"this machine has: {_machine(platform)}",
        ]
    )
    where = f"a machine with {len(devices)} {needed} devices" if devices else f"a machine with {needed} devices"
    hint = f"{install}{where}; or `platform: {platform.name}` to run it here all the same"
    return Problem("platform", rule, None, hint)


def _package_state(registry: Registry, package: str) -> tuple[str, str]:
    record = next((one for one in registry.records if same_name(one.dist, package)), None)
    if record is None:
        return "not installed", f"pip install {package}, on "
    if record.state == "loaded":
        return f"installed, {record.version}", ""
    return f"installed, {record.state}: {record.problem}", "`roll plugins -v`, and "


def _machine(platform: ResolvedPlatform) -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    files = names.device_files()
    accelerator = f"{len(files)} device files ({files[0]}, ...)" if files else "no accelerator"
    return f"{platform.name}, {cores} cores, {accelerator}"
