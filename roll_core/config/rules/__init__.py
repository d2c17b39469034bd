"""What must hold between the keys of a config, whatever machine it is run on. Everything is reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roll_core.config.agentic import AgenticConfig
from roll_core.config.pipeline import BaseConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.rules import (
    agentic,
    algorithm,
    batches,
    data,
    devices,
    lengths,
    rewards,
    rollout,
    schedule,
    unused,
)
from roll_core.errors import Problem

_COMMON: tuple[Callable[[BaseConfig], Iterator[Problem]], ...] = (
    devices.problems,
    schedule.problems,
)
_ROLLOUT: tuple[Callable[[RLVRConfig], Iterator[Problem]], ...] = (
    data.problems,
    rewards.problems,
    lengths.problems,
    rollout.problems,
)
_RLVR: tuple[Callable[[RLVRConfig], Iterator[Problem]], ...] = (
    data.problems,
    rewards.problems,
    batches.problems,
    lengths.problems,
    algorithm.problems,
)


def problems_of(config: BaseConfig) -> list[Problem]:
    """Everything in a config that is wrong on any machine; empty if nothing is."""
    found = [problem for rule in _COMMON for problem in rule(config)]
    if isinstance(config, RLVRConfig):
        rules = _ROLLOUT if config.is_rollout_only else _RLVR
        found = [problem for rule in rules for problem in rule(config)] + found
    if isinstance(config, AgenticConfig):
        found = [*agentic.problems(config), *found]
    return list({(problem.path, problem.rule): problem for problem in found}.values())


def notices_of(config: BaseConfig) -> list[str]:
    """Sentences about keys that have no effect because of what other keys say."""
    if isinstance(config, RLVRConfig | AgenticConfig) and config.is_rollout_only:
        told = ("actor_infer", "validation", "rewards")
        more = unused.notices(config) if isinstance(config, RLVRConfig) else ()
        return [*rollout.notices(config), *(notice for notice in more if notice.startswith(told))]
    found = list(schedule.notices(config))
    if isinstance(config, RLVRConfig):
        found += [
            *algorithm.notices(config),
            *batches.notices(config),
            *unused.notices(config),
        ]
    if isinstance(config, AgenticConfig):
        found += agentic.notices(config)
    return found
