"""What in a config no GPU can do as written, whatever the machine: plans for other machines show it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roll_core.errors import Problem
from roll_cuda.env import COMMON_ALLOCATOR, ENGINES_WITH_A_POOL, wants_segments

if TYPE_CHECKING:
    from roll_core.config.schema import BaseConfig

AGREED = "NCCL_CUMEM_ENABLE"


def config_problems(config: BaseConfig, visible: Sequence[str], allocator: str) -> Iterator[Problem]:
    """Variables in `system_envs` that workers cannot work with.

    `visible` are the platform's lists of visible devices, `allocator` its variable of torch's memory allocator.
    """
    from roll_core.config.resolution import started_roles

    roles = started_roles(config)
    yield from _lists("system_envs", config.system_envs, visible)
    yield from _agreement("system_envs", config.system_envs)
    for path, role in roles.items():
        where = f"{path}.system_envs"
        yield from _lists(where, role.system_envs, visible)
        yield from _agreement(where, role.system_envs)
        if (role.strategy_name or "").rpartition("/")[2] in ENGINES_WITH_A_POOL:
            merged = {name: (value, "system_envs") for name, value in config.system_envs.items()}
            merged |= {name: (value, where) for name, value in role.system_envs.items()}
            yield from _segments(path, merged, allocator)


def _lists(path: str, variables: Mapping[str, Any], visible: Sequence[str]) -> Iterator[Problem]:
    for name in visible:
        if name in variables:
            rule = "each worker gets the devices that device_mapping names for it, whatever stands here"
            hint = f"export {name} before the run; device_mapping then counts within it"
            yield Problem(f"{path}.{name}", rule, variables[name], hint)


def _agreement(path: str, variables: Mapping[str, Any]) -> Iterator[Problem]:
    if str(variables.get(AGREED, "0")) != "0":
        rule = "vLLM sets 0 in its workers, and the ranks of a group that spans trainer and engine must agree"
        yield Problem(f"{path}.{AGREED}", rule, variables[AGREED], "leave it out: every worker gets 0")


def _segments(role: str, variables: Mapping[str, tuple[Any, str]], allocator: str) -> Iterator[Problem]:
    for name in (COMMON_ALLOCATOR, allocator):
        value, where = variables.get(name, ("", ""))
        if wants_segments(str(value)):
            rule = f"{role} has an engine with a memory pool of its own, which excludes expandable segments"
            hint = "leave it out: workers that train get expandable_segments:True anyway, engines nothing"
            yield Problem(f"{where}.{name}", rule, value, hint)
