"""Plans a run from its config, before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from roll_core.config.agentic import AgenticConfig
from roll_core.config.environment import Variable, role_variables
from roll_core.config.judges import judge_engine
from roll_core.config.memory_plan import MemoryPlan, plan_memory
from roll_core.config.pipeline import BaseConfig
from roll_core.config.plan import Cluster, DevicePlace, Plan, Request, RolePlan, WorkerPlan
from roll_core.config.resolution import started_roles
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig
from roll_core.config.rollout_steps import RolloutSteps, episode_steps, prompt_steps
from roll_core.config.rules.batches import BatchArithmetic, batch_arithmetic
from roll_core.config.runnable import RunCheck, beyond, check_run, merged
from roll_core.data.jsonl import find_file
from roll_core.errors import DataError, Problem
from roll_core.objects import our_name
from roll_core.platforms.base import Platform
from roll_core.plugins import Registry
from roll_core.rewards.builtin import BUILTIN_REWARDS
from roll_core.trackers.redact import is_secret_key

_COUNTED_BYTES = 64 * 2**20


def make_plan(
    config: BaseConfig,
    registry: Registry,
    pipeline: str,
    earlier: list[Problem],
    request: Request | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Plan a run of a config, complete or not. `earlier` are problems that are known already."""
    request = request or Request()
    check = check_run(config, registry, environ, planned=request.platform, quick=True)
    cluster = _cluster(config, check.platform, request)
    notices = [*config.notices, *check.notices, *_overruled(config, request)]
    kept = [problem for problem in earlier if not (request.is_elsewhere and problem.is_not_built)]
    notices += [beyond(problem) for problem in earlier if request.is_elsewhere and problem.is_not_built]
    if request.is_elsewhere:
        notices.append("model folders, data files and devices are not looked at: the plan is for other machines")
    roles = tuple(_roles(config, check, cluster, environ))
    memory = _memory(config, check, roles, cluster, request)
    rows = None if request.is_elsewhere else _count_rows(config)
    return Plan(
        source=config.source,
        pipeline=pipeline,
        platform=_platform_name(check, request, config),
        platform_reasons=check.resolution.platform.reasons if check.resolution.platform is not None else (),
        cluster=cluster,
        roles=roles,
        batches=_batches(config),
        rows=rows,
        memory=memory,
        problems=tuple([*merged(check.problems, kept), *_outside(config, cluster, request)]),
        notices=tuple(dict.fromkeys([*notices, *memory.warnings()])),
        rollout=_rollout(config, rows),
    )


def place_device(device: int, devices_per_node: int) -> DevicePlace:
    """Device g is the g % m-th of node g // m, where each node has m."""
    return DevicePlace(device, device // devices_per_node, device % devices_per_node)


def _platform_name(check: RunCheck, request: Request, config: BaseConfig) -> str:
    if check.resolution.platform is not None:
        return check.resolution.platform.name
    return request.platform or config.platform or "undecided"


def _cluster(config: BaseConfig, platform: Platform | None, request: Request) -> Cluster:
    per_node, source = _devices_per_node(config, platform, request)
    if request.nodes is not None:
        return Cluster(request.nodes, "--nodes", per_node, source)
    if config.num_nodes is not None:
        return Cluster(config.num_nodes, "num_nodes", per_node, source)
    nodes = max(1, -(-config.device_span // per_node))
    return Cluster(nodes, "counted from the devices that roles name", per_node, source)


def _devices_per_node(config: BaseConfig, platform: Platform | None, request: Request) -> tuple[int, str]:
    if request.devices_per_node is not None:
        return request.devices_per_node, "--devices-per-node"
    if config.num_gpus_per_node is not None:
        return config.num_gpus_per_node, "num_gpus_per_node"
    processes = config.devices_per_node(platform) if platform is not None else None
    if processes is not None:
        return processes, "as many processes as roles name"
    if platform is not None and not request.is_elsewhere:
        visible = _visible_devices(platform)
        if visible is not None:
            return visible
    nodes = request.nodes or config.num_nodes or 1
    return max(1, -(-config.device_span // nodes)), "assumed; num_gpus_per_node says it"


def _visible_devices(platform: Platform) -> tuple[int, str] | None:
    """How many devices this machine shows; None where it cannot be told without torch, or there are none."""
    visible = platform.visible_ids()
    if visible:
        return len(visible), "devices visible here"
    if type(platform).device_count is Platform.device_count:
        return None  # torch would be asked.
    try:
        count = platform.device_count()
    except Exception:
        # Code of a plugin, whose library may not be installed here: that is a problem of its own.
        return None
    return (count, f"platform {platform.name} counts them here") if count > 0 else None


def _memory(
    config: BaseConfig, check: RunCheck, roles: tuple[RolePlan, ...], cluster: Cluster, request: Request
) -> MemoryPlan:
    described = started_roles(config)
    workers = {
        role.name: [[(place.node, place.device) for place in worker.devices] for worker in role.workers]
        for role in roles
        if role.name in described
    }
    return plan_memory(
        config,
        {path: described[path] for path in workers},
        workers,
        check.platform,
        cluster.nodes,
        device_bytes=request.device_bytes,
        is_here=not request.is_elsewhere,
    )


def _overruled(config: BaseConfig, request: Request) -> list[str]:
    pairs = (
        ("num_nodes", config.num_nodes, "--nodes", request.nodes),
        ("num_gpus_per_node", config.num_gpus_per_node, "--devices-per-node", request.devices_per_node),
    )
    return [
        f"{key}: {written} in the config; planned with {option} {asked} because the command line says so"
        for key, written, option, asked in pairs
        if written is not None and asked is not None and written != asked
    ]


def _outside(config: BaseConfig, cluster: Cluster, request: Request) -> list[Problem]:
    """Devices beyond the planned cluster; where the config itself states the cluster, a rule has said it."""
    if request.nodes is None and request.devices_per_node is None and config.num_gpus_per_node is not None:
        return []
    total, found = cluster.nodes * cluster.devices_per_node, []
    for path, role in config.roles().items():
        outside = [device for device in role.devices if device >= total]
        if outside:
            rule = (
                f"names device {max(outside)}, but {cluster.nodes} nodes ({cluster.nodes_source}) with "
                f"{cluster.devices_per_node} devices each ({cluster.devices_source}) have {total}"
            )
            found.append(Problem(f"{path}.device_mapping", rule, None, "more nodes, or smaller device numbers"))
    return found


def _roles(config: BaseConfig, check: RunCheck, cluster: Cluster, environ: Mapping[str, str]) -> list[RolePlan]:
    plans = []
    shown = started_roles(config)
    if isinstance(config, RLVRConfig):
        judged = [name for name in config.rewards if (engine := judge_engine(config, name)) and engine[0] in shown]
        shown = shown | {f"rewards.{name}": one for name, one in config.rewards.items() if name not in judged}
    for path, role in shown.items():
        found = check.resolution.strategies.get(path)
        plans.append(
            RolePlan(
                name=path,
                strategy=role.strategy_name or "",
                provider=found.record.name if found is not None else "",
                target=found.backend.target if found is not None else _reward_class(path, role),
                workers=_workers(role, cluster.devices_per_node),
                environment=_environment(config, role, path, check.platform, environ),
            )
        )
    return plans


def _reward_class(path: str, role: WorkerConfig) -> str:
    if not path.startswith("rewards."):
        return ""
    name = our_name(role.worker_cls or path.removeprefix("rewards."))
    return BUILTIN_REWARDS.get(name, name)


def _workers(role: WorkerConfig, per_node: int) -> tuple[WorkerPlan, ...]:
    width, devices = max(1, role.num_gpus_per_worker), role.devices
    if not devices:
        return tuple(WorkerPlan(rank, ()) for rank in range(role.world_size or 1))
    starts = range(0, len(devices), width)
    return tuple(
        WorkerPlan(rank, tuple(place_device(device, per_node) for device in devices[start : start + width]))
        for rank, start in enumerate(starts)
    )


def _environment(
    config: BaseConfig, role: WorkerConfig, path: str, platform: Platform | None, environ: Mapping[str, str]
) -> dict[str, Variable]:
    # A platform whose class is not installed here has no defaults to show; what the config sets is shown still.
    name = path.replace("rewards.", "reward-")
    defaults = platform if platform is not None else _NoDefaults()
    variables = role_variables(config, role, name, defaults, environ)
    return {
        key: Variable("(hidden)", variable.source) if is_secret_key(key) else variable
        for key, variable in variables.items()
    }


class _NoDefaults(Platform):
    def worker_env(self, role: str) -> dict[str, str]:
        return {}


def _batches(config: BaseConfig) -> dict[str, BatchArithmetic]:
    if not isinstance(config, RLVRConfig) or config.is_rollout_only:
        return {}
    batches = {"actor_train": batch_arithmetic(config, config.actor_train, config.ppo_epochs)}
    if config.needs_critic and config.critic is not None:
        batches["critic"] = batch_arithmetic(config, config.critic, 1)
    return batches


def _rollout(config: BaseConfig, rows: int | None) -> RolloutSteps | None:
    if isinstance(config, RLVRConfig) and config.is_rollout_only and rows is not None:
        return prompt_steps(config, rows)
    return episode_steps(config) if isinstance(config, AgenticConfig) and config.is_rollout_only else None


def _count_rows(config: BaseConfig) -> int | None:
    if not isinstance(config, RLVRConfig):
        return None
    training = config.actor_train.data_args
    held_out = config.validation.data_args if config.validation is not None else None
    data = held_out if config.is_rollout_only else training
    if data is None or not data.file_name:
        return None
    folder = data.dataset_dir or (training.dataset_dir if training is not None else None) or ""
    try:
        paths = [find_file(name, folder) for name in data.file_name]
        if sum(path.stat().st_size for path in paths) > _COUNTED_BYTES:
            return None
        return sum(_lines(path) for path in paths)
    except (DataError, OSError):
        return None


def _lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for line in stream if line.strip())
