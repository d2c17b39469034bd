"""Devices: numbers that exist, workers of equal size, and roles that must not share."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.config.judges import judge_engines
from roll_core.config.pipeline import BaseConfig
from roll_core.config.resolution import started_roles
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig, engine_width
from roll_core.errors import Problem


def problems(config: BaseConfig) -> Iterator[Problem]:
    """Everything wrong with device_mapping, world_size and the sizes that split them."""
    for name, role in config.roles().items():
        yield from _numbers(config, name, role)
        yield from _workers(config, name, role)
        yield from _splits(name, role)
    if isinstance(config, RLVRConfig):
        yield from _judges(config)


def _numbers(config: BaseConfig, name: str, role: WorkerConfig) -> Iterator[Problem]:
    if config.num_nodes is None or config.num_gpus_per_node is None or not role.devices:
        return
    total = config.num_nodes * config.num_gpus_per_node
    outside = [device for device in role.devices if device >= total]
    if outside:
        rule = (
            f"names device {max(outside)}, but num_nodes {config.num_nodes} * num_gpus_per_node "
            f"{config.num_gpus_per_node} are the devices 0 to {total - 1}"
        )
        needed = -(-(max(outside) + 1) // config.num_gpus_per_node)
        hint = f"num_nodes: {needed}, or devices below {total}"
        yield Problem(f"{name}.device_mapping", rule, None, hint)


def _workers(config: BaseConfig, name: str, role: WorkerConfig) -> Iterator[Problem]:
    if not role.devices:
        return
    width, count = role.num_gpus_per_worker, len(role.devices)
    if width < 1:
        yield Problem(f"{name}.num_gpus_per_worker", "must be at least 1 for a role with a device_mapping", width)
        return
    if count % width:
        rule = f"names {count} devices, which are no whole number of workers of {width} each"
        hint = f"{count // width * width} or {(count // width + 1) * width} devices"
        yield Problem(f"{name}.device_mapping", rule, None, hint)
    elif role.world_size != count // width:
        rule = f"must equal {count} devices / {width} per worker = {count // width}"
        yield Problem(f"{name}.world_size", rule, role.world_size, "leave it out: it follows from device_mapping")
    if config.num_gpus_per_node and 1 < width <= config.num_gpus_per_node:
        yield from _straddling(name, role, config.num_gpus_per_node)


def _straddling(name: str, role: WorkerConfig, per_node: int) -> Iterator[Problem]:
    width = role.num_gpus_per_worker
    for start in range(0, len(role.devices), width):
        group = role.devices[start : start + width]
        if len({device // per_node for device in group}) > 1:
            rule = f"gives one worker the devices {group}, which are on several nodes of {per_node} devices"
            yield Problem(f"{name}.device_mapping", rule, None, "order the devices so that each worker has one node")
            return


def _splits(name: str, role: WorkerConfig) -> Iterator[Problem]:
    if not role.devices:
        return
    options = f"{name}.strategy_args.strategy_config"
    width = engine_width(role)
    if width > 1 and role.num_gpus_per_worker != width:
        rule = f"must equal tensor_parallel_size * pipeline_parallel_size = {width}"
        yield Problem(f"{name}.num_gpus_per_worker", rule, role.num_gpus_per_worker, "leave it out")
    ranks = role.world_size or 1
    if role.model_parallel_size > 1 and ranks % role.model_parallel_size:
        rule = f"{ranks} ranks are no whole number of groups of {role.model_parallel_size} that share a model"
        yield Problem(f"{name}.device_mapping", rule)
    shards = role.strategy_config.get("fsdp_size")
    is_fsdp = (role.strategy_name or "").startswith("fsdp2")
    if is_fsdp and type(shards) is int and 1 < shards < ranks and ranks % shards:
        fitting = [size for size in range(2, ranks + 1) if ranks % size == 0]
        hint = f"one of {', '.join(map(str, fitting))}"
        yield Problem(f"{options}.fsdp_size", f"must divide the {ranks} ranks of {name}", shards, hint)


def _judges(config: RLVRConfig) -> Iterator[Problem]:
    """A judge holds its model all the time: nobody takes turns with it."""
    engines = judge_engines(config)
    actors = {path: role for path, role in started_roles(config).items() if path not in engines}
    for path, judge in engines.items():
        for name, role in actors.items():
            shared = sorted(set(judge.devices) & set(role.devices))
            if shared:
                rule = f"a judge has devices of its own all the time, and {name} uses {_few(shared)} too"
                hint = "devices that no other role names"
                # Published configs let trainers share with it: it would have to sleep while they train.
                is_not_built = name != "actor_infer"
                yield Problem(f"{path}.device_mapping", rule, None, hint, is_not_built=is_not_built)
        actors[path] = judge


def _few(devices: list[int]) -> str:
    shown = ", ".join(map(str, devices[:8]))
    return shown if len(devices) <= 8 else f"{shown} and {len(devices) - 8} more"
