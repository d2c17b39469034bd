"""What may stand in `strategy_config` for hf_infer, and what in a role's config it cannot do. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roll_core.errors import Problem
from roll_core.platforms.base import Ability
from roll_core.training.model_args import attention_of

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

CONFIG_PATH = "strategy_args.strategy_config"


class HfInferConfig(BaseModel):
    """`strategy_config` of hf_infer."""

    model_config = ConfigDict(extra="forbid")

    load_format: Literal["auto", "dummy"] = "auto"
    """`dummy` reads no weights: the engine generates nothing until the trainer has sent them."""
    decoder: Literal["auto", "compact", "transformers"] = "auto"
    """Who computes: `compact` for dense Llama, Qwen2 and Qwen3; `transformers` for any causal language model, slower;
    `auto` takes compact wherever it computes exactly what the model's own code does."""
    max_running_requests: int = Field(default=256, ge=1)
    """Requests decoded together; the others wait their turn."""
    max_batch_tokens: int = Field(default=8192, ge=1)
    """Prompt tokens read in one pass, padding included. A longer prompt is read in a pass of its own."""
    max_cache_tokens: int | None = Field(default=None, ge=1)
    """Bound on the cache: running requests times the prompt and new tokens of the longest. None means no other
    bound than max_running_requests."""


def config_problems(role: WorkerConfig, platform: Platform) -> list[Problem]:
    """What in a role's config hf_infer cannot do here."""
    try:
        HfInferConfig.model_validate(role.strategy_config)
    except ValidationError as error:
        found = [
            Problem(".".join([CONFIG_PATH, *map(str, detail["loc"])]), detail["msg"], detail.get("input"))
            for detail in error.errors()
        ]
    else:
        found = []
    return [*found, *_model_problems(role, platform), *_device_problems(role)]


def _model_problems(role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    arguments = role.model_args
    attention = attention_of(role, platform)
    if attention not in platform.attention:
        rule = f"platform '{platform.name}' does not offer '{attention}'"
        hint = f"one of: {', '.join(platform.attention)}"
        yield Problem("model_args.attn_implementation", rule, arguments.attn_implementation, hint)
    needed = {"bf16": Ability.BF16, "bfloat16": Ability.BF16, "fp16": Ability.FP16, "float16": Ability.FP16}
    ability = needed.get(arguments.dtype or "fp32")
    if ability is not None and ability not in platform.abilities():
        yield Problem(
            "model_args.dtype", f"platform '{platform.name}' does not {ability.value}", arguments.dtype, "fp32"
        )
    if arguments.adapter_name_or_path or arguments.lora_target:
        path = "adapter_name_or_path" if arguments.adapter_name_or_path else "lora_target"
        value = arguments.adapter_name_or_path or arguments.lora_target
        yield Problem(f"model_args.{path}", "hf_infer serves whole models, not adapters", value, "leave the key out")


def _device_problems(role: WorkerConfig) -> Iterator[Problem]:
    if role.num_gpus_per_worker > 1:
        rule = "an hf_infer engine uses one device"
        yield Problem("num_gpus_per_worker", rule, role.num_gpus_per_worker, "num_gpus_per_worker: 1")
