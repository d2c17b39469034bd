"""What may stand in `strategy_config` for fsdp2_train and fsdp2_infer, and what of it cannot work here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roll_core.errors import Problem
from roll_core.platforms.base import Ability
from roll_core.training.model_args import model_problems
from roll_core.training.patches import patch_problems

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform

DTypeName = Literal["bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32", "float"]


class WrapPolicy(BaseModel):
    """Which modules become units of their own: gathered, used and freed together."""

    model_config = ConfigDict(extra="forbid")

    transformer_layer_cls_to_wrap: list[str] | None = None
    """Class names of layers; by default the model's own `_no_split_modules`."""
    wrap_embeddings: bool = False
    wrap_lm_output: bool = False
    moe_experts: list[str] = Field(default_factory=list)
    """Class names of expert modules."""


class Fsdp2Config(BaseModel):
    """`strategy_config` of fsdp2_train and fsdp2_infer."""

    model_config = ConfigDict(extra="forbid")

    fsdp_size: int = 1
    """Ranks that share one copy of the model; at most 1, or the number of ranks or more, means all of them."""
    param_dtype: DTypeName | None = None
    """Precision of forward and backward; by default the role's `model_args.dtype`."""
    reduce_dtype: DTypeName = "fp32"
    """Precision in which gradients are summed over ranks."""
    reshard_after_forward: bool | None = None
    """Free gathered weights between forward and backward; by default everywhere but at the root."""
    offload_policy: bool = False
    """Keep weights, gradients and optimiser state in host memory."""
    reduce_scatter_during_grad_accumulation: bool = True
    """Sum gradients over ranks after every micro-batch; false keeps whole gradients until the last one."""
    wrap_policy: WrapPolicy = Field(default_factory=WrapPolicy)
    apply_expert_patch: bool = False
    apply_tiled_mlp: bool = False
    tiled_num_shards: int = Field(default=4, ge=1)
    model_type: str | list[str] | None = None
    """Model types that the tiled MLP may change; by default whichever it knows."""
    ep_size: int = 1
    efsdp_size: int = 1
    moe_use_grouped_mm: bool = False
    async_save_ckpt: bool = False
    save_only_model: bool = False
    """Write the Hugging Face files and nothing to resume from."""


def config_problems(role: WorkerConfig, platform: Platform) -> list[Problem]:
    """What in a role's config FSDP2 cannot do here. Nothing that is asked for is left out silently."""
    try:
        config = Fsdp2Config.model_validate(role.strategy_config)
    except ValidationError as error:
        base = "strategy_args.strategy_config"
        return [
            Problem(".".join([base, *map(str, detail["loc"])]), detail["msg"], detail.get("input"))
            for detail in error.errors()
        ]
    return [
        *_unsupported(config),
        *_mesh_problems(config, role),
        *_precision_problems(config, role, platform),
        *_micro_batch_problems(role),
        *_schedule_problems(role),
        *model_problems(role, platform),
        *patch_problems(config, platform),
    ]


def _unsupported(config: Fsdp2Config) -> Iterator[Problem]:
    base = "strategy_args.strategy_config"
    if config.ep_size != 1:
        yield Problem(f"{base}.ep_size", "expert parallelism is not available in fsdp2", config.ep_size, "ep_size: 1")
    if config.efsdp_size != 1:
        rule = "expert parallelism is not available in fsdp2"
        yield Problem(f"{base}.efsdp_size", rule, config.efsdp_size, "efsdp_size: 1")
    if config.wrap_policy.moe_experts and not config.apply_expert_patch:
        rule = "experts that are gathered one by one need every rank to run all of them, which the expert patch does"
        hint = "apply_expert_patch: true, or leave moe_experts out"
        yield Problem(f"{base}.wrap_policy.moe_experts", rule, config.wrap_policy.moe_experts, hint)
    if config.moe_use_grouped_mm:
        rule = "grouped expert kernels are chosen by the model, not by fsdp2"
        yield Problem(f"{base}.moe_use_grouped_mm", rule, True, "leave the key out")
    if config.async_save_ckpt:
        rule = "a checkpoint is whole when a step ends, so it is never written in the background"
        yield Problem(f"{base}.async_save_ckpt", rule, True, "leave the key out")


def _mesh_problems(config: Fsdp2Config, role: WorkerConfig) -> Iterator[Problem]:
    ranks = role.world_size
    if ranks and 1 < config.fsdp_size < ranks and ranks % config.fsdp_size:
        rule = f"must divide the role's {ranks} ranks"
        yield Problem("strategy_args.strategy_config.fsdp_size", rule, config.fsdp_size)


def _precision_problems(config: Fsdp2Config, role: WorkerConfig, platform: Platform) -> Iterator[Problem]:
    given = config.param_dtype or role.model_args.dtype or "fp32"
    path = "strategy_args.strategy_config.param_dtype" if config.param_dtype else "model_args.dtype"
    if given in ("fp16", "float16", "half"):
        if role.trains:
            rule = "training in float16 needs loss scaling, which fsdp2 does not have"
            yield Problem(path, rule, given, "bf16 or fp32")
        elif Ability.FP16 not in platform.abilities():
            yield Problem(path, f"platform '{platform.name}' does not compute in float16", given, "bf16 or fp32")
    if given in ("bf16", "bfloat16") and Ability.BF16 not in platform.abilities():
        yield Problem(path, f"platform '{platform.name}' does not compute in bfloat16", given, "fp32")


def _micro_batch_problems(role: WorkerConfig) -> Iterator[Problem]:
    for use in ("train", "infer"):
        if getattr(role, f"use_dynamic_batching_in_{use}") and not getattr(role, f"max_tokens_per_microbatch_in_{use}"):
            rule = f"must be set when use_dynamic_batching_in_{use} is true"
            yield Problem(f"max_tokens_per_microbatch_in_{use}", rule)
    if role.use_sequence_packing:
        hint = "use_dynamic_batching_in_train: true cuts micro-batches by tokens"
        rule = "fsdp2 sorts rows by length instead of packing them"
        yield Problem("use_sequence_packing", rule, True, hint, is_not_built=True)


def _schedule_problems(role: WorkerConfig) -> Iterator[Problem]:
    # The others of transformers need settings of their own, or watch a metric.
    known = ("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup")
    if role.trains and role.training_args.lr_scheduler_type not in (*known, "inverse_sqrt"):
        rule = f"must be one of {', '.join(known)}, inverse_sqrt"
        yield Problem("training_args.lr_scheduler_type", rule, role.training_args.lr_scheduler_type)
