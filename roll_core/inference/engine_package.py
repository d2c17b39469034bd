"""An engine's package as it is installed here, and what in a role's config it cannot do. Imports nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roll_core.errors import Problem
from roll_core.platforms.base import Ability
from roll_core.training.model_args import dtype_name

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

CONFIG_PATH = "strategy_args.strategy_config"
ALIKE = 0.7
"""From this likeness on, of 1, another key is proposed."""


@dataclass(frozen=True)
class EnginePackage:
    """What a config is compared with.

    Args:
        name: of the package, which is the strategy's too.
        version: the one that is installed; None where none is, and then nothing is said of its arguments.
        supported: the versions that the strategy works with, in pip's words.
        argument_names: the engine's own arguments; empty where they are not known.
        arguments_place: where a user finds them.
        ours: arguments that the strategy sets itself, and why.
        keys: keys of `strategy_config` that are the strategy's own.
        sleep_key: the argument that lets the engine free its memory.
    """

    name: str
    version: str | None
    supported: str
    is_supported: bool
    argument_names: frozenset[str]
    arguments_place: str
    ours: Mapping[str, str]
    keys: Collection[str]
    sleep_key: str

    def problems(self, role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
        """What in a role's config this engine cannot do here."""
        if self.version is not None and not self.is_supported:
            rule = f"{self.name} {self.version} is installed, and this strategy works with {self.name}{self.supported}"
            remedy = f'pip install "{self.name}{self.supported}"'
            yield Problem("strategy_args.strategy_name", rule, self.name, remedy)
        yield from self._key_problems(role)
        yield from self._model_problems(role, platform)
        if role.strategy_config.get(self.sleep_key) and Ability.SLEEP not in platform.abilities():
            rule = f"platform '{platform.name}' cannot {Ability.SLEEP.value}"
            yield Problem(f"{CONFIG_PATH}.{self.sleep_key}", rule, True, "leave the key out")
        yield from _size_problems(role)

    def _key_problems(self, role: WorkerConfig) -> Iterator[Problem]:
        known = self.argument_names
        for key, value in role.strategy_config.items():
            path = f"{CONFIG_PATH}.{key}"
            if key in self.ours:
                yield Problem(path, f"is set by the strategy: {self.ours[key]}", value, "leave the key out")
            elif known and key not in known and key not in self.keys:
                candidates = sorted((known | set(self.keys)) - set(self.ours))
                close = difflib.get_close_matches(key, candidates, n=1, cutoff=ALIKE)
                rule = f"{self.name} {self.version} has no such engine argument"
                hint = f"did you mean '{close[0]}'?" if close else f"the fields of {self.arguments_place}"
                yield Problem(path, rule, value, hint)

    def _model_problems(self, role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
        arguments = role.model_args
        needed = {"bfloat16": Ability.BF16, "float16": Ability.FP16}
        ability = needed.get(dtype_name(arguments.dtype)) if arguments.dtype is not None else None
        if ability is not None and ability not in platform.abilities():
            rule = f"platform '{platform.name}' does not {ability.value}"
            yield Problem("model_args.dtype", rule, arguments.dtype, "fp32")
        for key in ("adapter_name_or_path", "lora_target"):
            value = getattr(arguments, key)
            if value:
                rule = f"{self.name} serves whole models here, not adapters"
                yield Problem(f"model_args.{key}", rule, value, "leave the key out", is_not_built=True)


def _size_problems(role: WorkerConfig) -> Iterator[Problem]:
    sizes = [role.strategy_config.get(key) or 1 for key in ("tensor_parallel_size", "pipeline_parallel_size")]
    if role.devices and all(type(size) is int for size in sizes) and role.num_gpus_per_worker != sizes[0] * sizes[1]:
        rule = f"must be tensor_parallel_size {sizes[0]} x pipeline_parallel_size {sizes[1]}"
        yield Problem("num_gpus_per_worker", rule, role.num_gpus_per_worker, "leave the key out")
