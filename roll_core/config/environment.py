"""The environment of a role's workers: every variable with its value, and who set it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roll_core.config.pipeline import BaseConfig
from roll_core.config.roles import WorkerConfig, is_engine
from roll_core.platforms import Platform

Source = Literal["role system_envs", "system_envs", "process", "platform"]


@dataclass(frozen=True)
class Variable:
    """A variable's value, and where it comes from."""

    value: str
    source: Source


def role_variables(
    config: BaseConfig, role: WorkerConfig, name: str, platform: Platform, process: Mapping[str, str] = os.environ
) -> dict[str, Variable]:
    """Variables of one role's workers by name, sorted.

    The role's `system_envs` win over the config's, these over the environment of the process that starts the run,
    and that over the platform's defaults, those for the role's engine included. Of the process only what a platform
    has a default for is listed: the rest reaches workers of this machine as it is.
    """
    variables: dict[str, Variable] = {}
    engine = platform.engine_defaults(role.strategy_name or "").env if is_engine(role) else {}
    for variable, default in {**platform.worker_env(name), **engine}.items():
        variables[variable] = Variable(default, "platform")
        if variable in process:
            variables[variable] = Variable(process[variable], "process")
    variables |= {variable: Variable(value, "system_envs") for variable, value in config.system_envs.items()}
    variables |= {variable: Variable(value, "role system_envs") for variable, value in role.system_envs.items()}
    return dict(sorted(variables.items()))


def role_environment(
    config: BaseConfig, role: WorkerConfig, name: str, platform: Platform, process: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The values alone, as a worker gets them."""
    return {key: variable.value for key, variable in role_variables(config, role, name, platform, process).items()}
