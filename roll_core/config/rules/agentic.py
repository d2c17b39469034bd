"""Agentic configs: environments that exist, groups that fill a batch, lengths, and estimators that suit them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from roll_core.config.agentic import AgenticConfig, EnvManagerConfig
from roll_core.config.rules import rollout
from roll_core.config.rules.algorithm import asynchronous, idle_roles, missing_roles
from roll_core.data.tags import nearest
from roll_core.data.templates import template_problems
from roll_core.envs.base import BUILTIN_ENVIRONMENTS
from roll_core.errors import Problem
from roll_core.objects import our_name, spec_problem

MANAGERS = ("traj", "step")
"""How episodes become rows: one per trajectory, or one per step."""
GROUPINGS = ("batch", "tags", "traj_group_id", "state")


def problems(config: AgenticConfig) -> Iterator[Problem]:
    """Everything about environments, groups and estimators that cannot work on any machine."""
    if config.is_rollout_only:
        yield from rollout.problems(config)
    else:
        yield from _learning(config)
    if config.sequence_length is None and config.response_length is None:
        hint = "sequence_length: 4096 (the longest episode, in tokens)"
        yield Problem("sequence_length", "must be given", None, hint)
    yield from _manager(config, "train_env_manager", config.train_env_manager, config.rollout_batch_size)
    if config.val_env_manager is not None and not config.is_rollout_only:
        yield from _manager(config, "val_env_manager", config.val_env_manager, config.val_batch_size)
    for tag in config.used_tags:
        if tag in config.custom_envs:
            yield from _environment(config, tag)
    # The first role that has data_args says it.
    roles = {"actor_train": config.actor_train, "actor_infer": config.actor_infer}
    path, data = next(((path, role.data_args) for path, role in roles.items() if role.data_args), ("", None))
    if data is not None and data.template is not None:
        yield from template_problems(f"{path}.data_args.template", data.template)


def _learning(config: AgenticConfig) -> Iterator[Problem]:
    """Roles and estimators of a run that trains."""
    yield from missing_roles(config, has_default_estimator="adv_estimator" not in config.model_fields_set)
    yield from _estimator(config)
    yield from asynchronous(config)
    if config.async_generation_ratio > 0 and config.train_env_manager.pace == "lockstep":
        rule = "must be free with async_generation_ratio above 0: weights change in the midst of episodes"
        yield Problem("train_env_manager.pace", rule, "lockstep", "leave it out")


def notices(config: AgenticConfig) -> Iterator[str]:
    """Keys that were written and change nothing, because of what other keys say."""
    if config.val_env_manager is None and "eval_steps" in config.model_fields_set and config.eval_steps > 0:
        yield "eval_steps: has no effect without a section val_env_manager"
    yield from idle_roles(config)
    for key in ("norm_mean_type", "norm_std_type"):
        if getattr(config, key) is not None:
            yield f"{key}: has no effect; episodes are compared as reward_normalization says"
    for name in ("train_env_manager", "val_env_manager"):
        manager = getattr(config, name)
        if manager is not None and manager.max_traj_per_env != -1:
            yield f"{name}.max_traj_per_env: has no effect; environments play as many episodes as a step needs"
    for path, role in config.roles().items():
        if "num_train_epochs" in role.training_args.model_fields_set:
            yield f"{path}.training_args.num_train_epochs: has no effect; max_steps counts the steps of the pipeline"
        for key in sorted(role.data_args.model_fields_set - {"template"}) if role.data_args is not None else ():
            yield f"{path}.data_args.{key}: has no effect; an episode begins in its environment, not in a data file"


def _manager(config: AgenticConfig, name: str, manager: EnvManagerConfig, batch_size: int) -> Iterator[Problem]:
    key = "rollout_batch_size" if name == "train_env_manager" else "val_batch_size"
    if batch_size < 1 or batch_size % manager.group_size:
        rule = f"must be a multiple of {name}.group_size {manager.group_size}: episodes of a group are kept together"
        lower = batch_size // manager.group_size * manager.group_size
        yield Problem(key, rule, batch_size, f"{max(lower, manager.group_size)}")
    if not manager.tags:
        yield Problem(
            f"{name}.tags", "names no environment", None, f"tags: [{', '.join(config.custom_envs) or 'MyEnv'}]"
        )
    for tag in manager.tags:
        if tag not in config.custom_envs:
            close = nearest(tag, list(config.custom_envs))
            hint = f"did you mean '{close}'?" if close else f"there are: {', '.join(config.custom_envs) or 'none'}"
            yield Problem(f"{name}.tags", "no environment of custom_envs has this name", tag, hint)
    parts = manager.num_groups_partition
    if parts is not None and (len(parts) != len(manager.tags) or sum(parts) != manager.num_env_groups):
        rule = (
            f"must have a number for each of the {len(manager.tags)} tags, adding up to num_env_groups "
            f"{manager.num_env_groups}"
        )
        yield Problem(f"{name}.num_groups_partition", rule, str(parts), "leave it out for equal parts")
    if manager.own_group_filter is not None:
        wrong = spec_problem(manager.own_group_filter, {}, "group filter")
        if wrong is not None:
            rule, _, rest = wrong.partition("\n")
            hint = "; ".join(line.strip() for line in rest.splitlines())
            yield Problem(f"{name}.group_filter_cls", rule, None, hint)
    sampling = manager.generating_args
    if sampling is not None and sampling.num_return_sequences not in (None, 1):
        rule = "must be 1: an episode has one answer per turn"
        yield Problem(f"{name}.generating_args.num_return_sequences", rule, sampling.num_return_sequences)


def _environment(config: AgenticConfig, tag: str) -> Iterator[Problem]:
    env, path = config.custom_envs[tag], f"custom_envs.{tag}"
    wrong = spec_problem(env.env_type or tag, BUILTIN_ENVIRONMENTS, "environment")
    if wrong is not None:
        rule, _, rest = wrong.partition("\n")
        name = env.env_type or tag
        is_elsewhere = name.isidentifier() and not nearest(name, list(BUILTIN_ENVIRONMENTS))
        hint = "; ".join(line.strip() for line in rest.splitlines())
        yield Problem(f"{path}.env_type", rule, None, hint, is_not_built=is_elsewhere)
    manager = our_name(env.env_manager_cls or "traj")
    if manager not in MANAGERS:
        rule = "no env manager of this name is in this version"
        hint = " or ".join(MANAGERS)
        yield Problem(f"{path}.env_manager_cls", rule, env.env_manager_cls, hint, is_not_built=True)
    if env.max_steps is not None and env.max_steps < 1:
        rule = "must be at least 1: an episode without end would never be trained on"
        yield Problem(f"{path}.max_steps", rule, env.max_steps)


def _estimator(config: AgenticConfig) -> Iterator[Problem]:
    name, grouping = config.adv_estimator, config.reward_normalization.grouping
    norms = config.reward_normalization
    if grouping not in GROUPINGS:
        close = nearest(grouping, list(GROUPINGS))
        hint = f"did you mean '{close}'?" if close else f"one of: {', '.join(GROUPINGS)}"
        yield Problem("reward_normalization.grouping", "episodes cannot be grouped by this", grouping, hint)
    elif grouping == "state" and name != "step_reinforce":
        rule = f"compares steps, and adv_estimator {name} compares episodes"
        hint = "grouping: traj_group_id (gigpo compares steps from the same state besides)"
        yield Problem("reward_normalization.grouping", rule, grouping, hint)
    if "running" in (norms.norm_mean_type, norms.norm_std_type):
        yield Problem("reward_normalization", "episodes are compared within a batch or a group", "running")
    if name not in ("gae", "reinforce", "reinforce_plus_plus", "grpo", "gigpo", "step_reinforce", "agentic_reinforce"):
        yield Problem("adv_estimator", "agentic runs do not have this estimator", name, "grpo")
    if name in ("grpo", "gigpo") and config.train_env_manager.group_size < 2:
        rule = f"adv_estimator {name} compares the episodes of a group, which needs at least 2"
        yield Problem("train_env_manager.group_size", rule, config.train_env_manager.group_size, "group_size: 8")
    if name in ("gigpo", "step_reinforce", "agentic_reinforce") and config.add_token_level_kl:
        rule = f"adv_estimator {name} values turns, which have no token-level KL"
        yield Problem("add_token_level_kl", rule, True, "use_kl_loss: true")
    temperature = config.actor_infer.generating_args.temperature if config.actor_infer.generating_args else 1.0
    if config.train_env_manager.group_size > 1 and math.isclose(temperature, 0.0):
        rule = "all episodes of a group would be the same"
        yield Problem("actor_infer.generating_args.temperature", rule, temperature, "temperature: 1.0")
