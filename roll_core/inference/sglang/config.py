"""What may stand in `strategy_config` for sglang, and the arguments its engine gets. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from roll_core.errors import Problem
from roll_core.inference.end_tokens import has_tokenizer
from roll_core.inference.engine_package import EnginePackage
from roll_core.inference.sglang import installed
from roll_core.platforms.base import Ability
from roll_core.training.model_args import dtype_name

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

LOADER = "roll_core.inference.sglang.loader.load"
"""The function that SGLang calls in each of its ranks to load tensors."""

_ONE_REPLICA = "an engine is one replica; more devices in device_mapping make more engines"
OURS = {
    "model_path": "it is the role's model_args.model_name_or_path",
    "dtype": "it is the role's model_args.dtype",
    "tp_size": "it is written tensor_parallel_size here, from which the engine's number of devices follows",
    "pp_size": "it is written pipeline_parallel_size here, from which the engine's number of devices follows",
    "dp_size": _ONE_REPLICA,
    "nnodes": "the devices of an engine are on one node",
    "custom_weight_loader": "it takes the trainer's weights",
    "enable_weights_cpu_backup": "it follows from sleep_level",
    "skip_tokenizer_init": "it follows from whether the model's folder has a tokenizer",
    "tokenizer_worker_num": "requests are aborted through the one tokenizer process that knows them",
}
"""Engine arguments that the strategy sets itself, and why."""


class SglangConfig(BaseModel):
    """`strategy_config` of sglang: its own keys, and any argument of the installed engine."""

    model_config = ConfigDict(extra="allow")

    load_format: str = "auto"
    """`dummy` reads no weights: the engine generates nothing until the trainer has sent them."""
    sleep_level: Literal[1, 2] = 1
    """What a sleeping engine does with its weights: 1 keeps them in host memory, 2 drops them. Only where the platform
    can free an engine's memory."""
    tensor_parallel_size: int = Field(1, ge=1)
    pipeline_parallel_size: int = Field(1, ge=1)

    @property
    def num_ranks(self) -> int:
        """Processes that hold a part of the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


def engine_arguments(role: WorkerConfig, platform: Platform, seed: int) -> dict[str, Any]:
    """Everything the engine is started with: the platform's defaults, above them the user's keys, above them ours."""
    config = SglangConfig.model_validate(role.strategy_config)
    path = role.model_args.model_name_or_path
    assert path is not None, "the config's problems name it"
    # Without deterministic inference SGLang reads no request's seed.
    arguments: dict[str, Any] = {"random_seed": seed, "enable_deterministic_inference": True}
    arguments |= platform.engine_defaults("sglang").args
    if Ability.SLEEP in platform.abilities():
        arguments["enable_memory_saver"] = True
    if role.model_args.dtype is not None:
        arguments["dtype"] = dtype_name(role.model_args.dtype)
    return {
        **arguments,
        **(config.model_extra or {}),
        "model_path": path,
        "load_format": config.load_format,
        "tp_size": config.tensor_parallel_size,
        "pp_size": config.pipeline_parallel_size,
        "custom_weight_loader": [LOADER],
        "enable_weights_cpu_backup": Ability.SLEEP in platform.abilities() and config.sleep_level == 1,
        "skip_tokenizer_init": not has_tokenizer(path),
    }


def config_problems(role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    """What in a role's config sglang cannot do here."""
    found = installed.version()
    package = EnginePackage(
        name="sglang",
        version=found,
        supported=installed.SUPPORTED,
        is_supported=found is not None and installed.is_supported(found),
        argument_names=installed.argument_names(),
        arguments_place="sglang.srt.server_args.ServerArgs",
        ours=OURS,
        keys=frozenset(SglangConfig.model_fields),
        sleep_key="enable_memory_saver",
    )
    return package.problems(role, platform)
