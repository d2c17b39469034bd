"""The environments that a config describes: made where they live, and how a model plays in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from roll_core.config.agentic import CustomEnv, EnvManagerConfig
from roll_core.config.environment import role_environment
from roll_core.config.schema import AgenticConfig, GeneratingArgs
from roll_core.objects import our_name
from roll_core.pipelines.launch import Site, worker_spec
from roll_core.platforms import Platform

if TYPE_CHECKING:
    from roll_core.rollout.env_episode import Style
    from roll_core.rollout.environments import Environments, Kind

MAX_STEPS = 20
"""Turns of an episode where the config says nothing."""

MakeEnvironments = Callable[[EnvManagerConfig], "Environments"]
"""Makes a manager's environments, wherever they live."""


def pool_of(config: AgenticConfig, manager: EnvManagerConfig) -> Environments:
    """Environments in processes beside this one, with its environment variables."""
    from roll_core.rollout.env_pool import EnvPool

    number = num_processes(config, manager)
    return EnvPool(kinds_of(config, manager), number, config.env_monitor.hung_timeout, limits_of(config, manager))


def environments_of(config: AgenticConfig, site: Site, platform: Platform, manager: EnvManagerConfig) -> Environments:
    """Where environments live: in processes beside this one, or in workers that are dealt to the nodes of the run.

    Workers are as many as the manager's `world_size`, where that is more than one, else one for each of several nodes.
    """
    from roll_core.cluster.nodes import Place
    from roll_core.rollout.env_remote import launch_environments

    count = manager.world_size or 1
    if count == 1 and config.node_count == 1:
        return pool_of(config, manager)
    nodes, name = site.nodes, manager.name or "env_manager"
    count = count if count > 1 else len(nodes)
    settings = {
        "num_processes": max(1, -(-num_processes(config, manager) // count)),
        "deadline_s": config.env_monitor.hung_timeout,
        # A bound for all is kept by each keeping its part of it.
        "limits": {tag: max(1, limit // count) for tag, limit in limits_of(config, manager).items()},
    }
    return launch_environments(
        [worker_spec(site, name, manager, rank, count, "") for rank in range(count)],
        [Place(nodes[rank % len(nodes)], ()) for rank in range(count)],
        platform,
        role_environment(config, manager, name, platform),
        kinds_of(config, manager),
        settings,
    )


def kinds_of(config: AgenticConfig, manager: EnvManagerConfig) -> Mapping[str, Kind]:
    """What the environments of each tag are made from."""
    from roll_core.rollout.environments import Kind

    found = {}
    for tag in manager.tags:
        env = config.custom_envs[tag]
        found[tag] = Kind(env.env_type or tag, dict(env.env_config), env.use_thread_lock)
    return found


def style_of(config: AgenticConfig, tag: str) -> Style:
    """How a model plays in the environments of a tag."""
    from roll_core.rollout.env_episode import Style

    env: CustomEnv = config.custom_envs[tag]
    limit = (config.actor_infer.generating_args or GeneratingArgs()).max_new_tokens or config.row_length
    return Style(
        tag=tag,
        is_stepwise=our_name(env.env_manager_cls or "traj") == "step",
        max_steps=env.max_steps or MAX_STEPS,
        max_tokens_per_step=env.max_tokens_per_step or limit,
        sequence_length=config.row_length,
        system_template=env.agent_system_template,
        agent_template=env.agent_template,
        history_length=5 if env.history_length is None else env.history_length,
    )


def num_processes(config: AgenticConfig, manager: EnvManagerConfig) -> int:
    """Processes that environments share: as many as `max_env_num_per_worker` needs, else one per core, at most 8."""
    count = manager.num_env_groups * manager.num_members
    each = manager.max_env_num_per_worker
    number = -(-count // each) if each else min(8, len(os.sched_getaffinity(0)))
    return max(1, min(number, count))


def limits_of(config: AgenticConfig, manager: EnvManagerConfig) -> Mapping[str, int]:
    """How many environments of a tag may be at work at once, where the config says so."""
    given = {tag: config.custom_envs[tag].max_env_step_concurrent for tag in manager.tags}
    return {tag: limit for tag, limit in given.items() if limit}
