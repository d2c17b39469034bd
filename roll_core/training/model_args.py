"""How a role's `model_args` are read: precision, attention, kind of model, and what fsdp2 does not offer.

Imports nothing heavy, so that a config can be checked without torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roll_core.errors import Problem

if TYPE_CHECKING:
    import torch

    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

VALUE_MODEL = "auto_token_classification"

_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
}
_ATTENTION = {"fa2": "flash_attention_2"}


def dtype_of(name: str | None) -> torch.dtype:
    """torch's dtype for a config's name of it; float32 where there is none.

    Raises:
        ValueError: an unknown name.
    """
    import torch

    dtype = getattr(torch, dtype_name(name or "fp32"))
    assert isinstance(dtype, torch.dtype)
    return dtype


def dtype_name(name: str) -> str:
    """torch's name for a config's name of a precision.

    Raises:
        ValueError: an unknown name.
    """
    if name not in _DTYPES:
        raise ValueError(f"no precision named '{name}'; known: {', '.join(_DTYPES)}")
    return _DTYPES[name]


def attention_of(role: WorkerConfig, platform: Platform) -> str:
    """transformers' name of the attention that the role asks for; the platform's best for "auto" or nothing."""
    asked = role.model_args.attn_implementation
    if asked is None or asked == "auto":
        return platform.attention[0]
    return _ATTENTION.get(asked, asked)


def is_critic(role: WorkerConfig) -> bool:
    """Whether the role's model gives values instead of tokens."""
    return role.name == "critic" or role.model_args.model_type == VALUE_MODEL


def model_problems(role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    """What in `model_args` cannot be had here."""
    arguments = role.model_args
    attention = attention_of(role, platform)
    if attention not in platform.attention:
        shown = ", ".join(platform.attention)
        rule = f"platform '{platform.name}' does not offer '{attention}'"
        yield Problem("model_args.attn_implementation", rule, arguments.attn_implementation, f"one of: {shown}")
    if arguments.model_type not in (None, VALUE_MODEL):
        rule = "fsdp2 loads causal language models and, for critics, token classifiers"
        yield Problem("model_args.model_type", rule, arguments.model_type, f"leave it out, or {VALUE_MODEL}")
    if arguments.lora_target or arguments.adapter_name_or_path:
        path = "lora_target" if arguments.lora_target else "adapter_name_or_path"
        value = arguments.lora_target or arguments.adapter_name_or_path
        yield Problem(
            f"model_args.{path}",
            "fsdp2 trains whole models, not adapters",
            value,
            "leave the key out",
            is_not_built=True,
        )
    if arguments.ulysses_size > 1:
        rule = "fsdp2 does not split sequences over ranks"
        yield Problem("model_args.ulysses_size", rule, arguments.ulysses_size, "ulysses_size: 1", is_not_built=True)
    if arguments.moe_aux_loss_coef:
        rule = "fsdp2 trains on the policy's loss alone"
        yield Problem(
            "model_args.moe_aux_loss_coef", rule, arguments.moe_aux_loss_coef, "leave the key out", is_not_built=True
        )
    if role.router_replay is not None and role.router_replay.mode != "disable":
        rule = "fsdp2 does not replay expert choices"
        yield Problem("router_replay.mode", rule, role.router_replay.mode, "disable", is_not_built=True)
    if role.mtp_training_mode != "disabled":
        rule = "fsdp2 trains no multi-token prediction layers"
        yield Problem("mtp_training_mode", rule, role.mtp_training_mode, "disabled", is_not_built=True)
