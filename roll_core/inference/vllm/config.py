"""What may stand in `strategy_config` for vllm, and the arguments its engine is started with. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from roll_core.errors import Problem
from roll_core.inference.end_tokens import has_tokenizer
from roll_core.inference.engine_package import EnginePackage
from roll_core.inference.vllm import installed
from roll_core.platforms.base import Ability
from roll_core.training.model_args import dtype_name

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

EXTENSION = "roll_core.inference.vllm.worker.WorkerExtension"

OURS = {
    "model": "it is the role's model_args.model_name_or_path",
    "dtype": "it is the role's model_args.dtype",
    "logprobs_mode": "training needs the log-probs of what was sampled, at the temperature it was sampled at",
    "worker_extension_cls": "it takes the trainer's weights",
    "skip_tokenizer_init": "it follows from whether the model's folder has a tokenizer",
    "data_parallel_size": "an engine is one replica; more devices in device_mapping make more engines",
}
"""Engine arguments that the strategy sets itself, and why."""

WITHOUT_EFFECT = {"VLLM_USE_V1"}
"""Keys of published configs that mean nothing to the engine any more."""

ENVIRONMENT = {
    # Nothing is reported to anyone.
    "VLLM_NO_USAGE_STATS": "1",
    # Log-probs are corrected in the sampler of the first model runner (log_probs.py); the second has no such place.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}


class VllmConfig(BaseModel):
    """`strategy_config` of vllm: its own two keys, and any argument of the installed engine."""

    model_config = ConfigDict(extra="allow")

    load_format: str = "auto"
    """`dummy` reads no weights: the engine generates nothing until the trainer has sent them."""
    sleep_level: Literal[1, 2] = 1
    """What a sleeping engine does with its weights: 1 keeps them in host memory, 2 drops them. Only where the platform
    can free an engine's memory."""

    @property
    def engine_arguments(self) -> dict[str, Any]:
        """What is passed through to the engine."""
        return {name: value for name, value in (self.model_extra or {}).items() if name not in WITHOUT_EFFECT}


def engine_arguments(role: WorkerConfig, platform: Platform, seed: int) -> dict[str, Any]:
    """Everything the engine is started with: the platform's defaults, above them the user's keys, above them ours."""
    config = VllmConfig.model_validate(role.strategy_config)
    path = role.model_args.model_name_or_path
    assert path is not None, "the config's problems name it"
    given = config.engine_arguments
    arguments: dict[str, Any] = {"seed": seed, "disable_log_stats": True, "enable_prefix_caching": True}
    arguments |= platform.engine_defaults("vllm").args
    if Ability.SLEEP in platform.abilities():
        arguments["enable_sleep_mode"] = True
    if role.num_gpus_per_worker > 1:
        # Its own processes, beside this one: an engine's devices are on one node.
        arguments["distributed_executor_backend"] = "mp"
    if role.model_args.dtype is not None:
        arguments["dtype"] = dtype_name(role.model_args.dtype)
    return {
        **arguments,
        **given,
        "model": path,
        "load_format": config.load_format,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": EXTENSION,
        "skip_tokenizer_init": not has_tokenizer(path),
    }


def config_problems(role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    """What in a role's config vllm cannot do here."""
    found = installed.version()
    package = EnginePackage(
        name="vllm",
        version=found,
        supported=installed.supported_range(),
        is_supported=found is not None and installed.is_supported(found),
        argument_names=installed.argument_names(),
        arguments_place="vllm.EngineArgs",
        ours=OURS,
        keys={*VllmConfig.model_fields, *WITHOUT_EFFECT},
        sleep_key="enable_sleep_mode",
    )
    return package.problems(role, platform)
