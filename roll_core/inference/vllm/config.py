"""What may stand in `strategy_config` for vllm, and the arguments its engine is started with. Imports nothing heavy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from roll_core.errors import Problem
from roll_core.inference.end_tokens import has_tokenizer
from roll_core.inference.vllm import installed
from roll_core.platforms.base import Ability
from roll_core.training.model_args import dtype_name

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

CONFIG_PATH = "strategy_args.strategy_config"
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
    yield from _version_problems()
    yield from _key_problems(role)
    yield from _model_problems(role, platform)
    if role.strategy_config.get("enable_sleep_mode") and Ability.SLEEP not in platform.abilities():
        rule = f"platform '{platform.name}' cannot {Ability.SLEEP.value}"
        yield Problem(f"{CONFIG_PATH}.enable_sleep_mode", rule, True, "leave the key out")
    sizes = [role.strategy_config.get(key) or 1 for key in ("tensor_parallel_size", "pipeline_parallel_size")]
    if role.devices and all(type(size) is int for size in sizes) and role.num_gpus_per_worker != sizes[0] * sizes[1]:
        rule = f"must be tensor_parallel_size {sizes[0]} x pipeline_parallel_size {sizes[1]}"
        yield Problem("num_gpus_per_worker", rule, role.num_gpus_per_worker, "leave the key out")


def _version_problems() -> Iterator[Problem]:
    found = installed.version()
    if found is not None and not installed.is_supported(found):
        wanted = installed.supported_range()
        rule = f"vllm {found} is installed, and this strategy works with vllm{wanted}"
        yield Problem("strategy_args.strategy_name", rule, "vllm", f'pip install "vllm{wanted}"')


def _key_problems(role: WorkerConfig) -> Iterator[Problem]:
    known = installed.argument_names()
    mine = set(VllmConfig.model_fields) | WITHOUT_EFFECT
    for key, value in role.strategy_config.items():
        if key in OURS:
            yield Problem(f"{CONFIG_PATH}.{key}", f"is set by the strategy: {OURS[key]}", value, "leave the key out")
        elif known and key not in known | mine:
            close = difflib.get_close_matches(key, sorted(known | set(VllmConfig.model_fields)), n=1, cutoff=0.7)
            rule = f"vllm {installed.version()} has no such engine argument"
            hint = f"did you mean '{close[0]}'?" if close else "the fields of vllm.EngineArgs"
            yield Problem(f"{CONFIG_PATH}.{key}", rule, value, hint)


def _model_problems(role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    arguments = role.model_args
    needed = {"bfloat16": Ability.BF16, "float16": Ability.FP16}
    ability = needed.get(dtype_name(arguments.dtype)) if arguments.dtype is not None else None
    if ability is not None and ability not in platform.abilities():
        rule = f"platform '{platform.name}' does not {ability.value}"
        yield Problem("model_args.dtype", rule, arguments.dtype, "fp32")
    for key in ("adapter_name_or_path", "lora_target"):
        if getattr(arguments, key):
            rule = "vllm serves whole models here, not adapters"
            yield Problem(f"model_args.{key}", rule, getattr(arguments, key), "leave the key out", is_not_built=True)
