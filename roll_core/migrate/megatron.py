"""What options of other trainers mean, and why fsdp2 does without them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from roll_core.migrate.roles import Role
from roll_core.training.fsdp2_config import Fsdp2Config

_SPLITS = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")

_REASONS: tuple[tuple[str, str, str], ...] = (
    (r"(virtual_)?pipeline_model_parallel_size|account_for_.*_split|num_layers_in_.*_pipeline.*|pipeline_.*",
     "fsdp2 shards the weights of every layer instead of giving layers to stages", ""),
    (r"(tensor_model|expert_tensor)_parallel_size|sequence_parallel",
     "fsdp2 shards weights over fsdp_size devices instead of splitting matrices", ""),
    (r"context_parallel_size|cp_.*", "fsdp2 does not split sequences", ""),
    (r"expert_model_parallel_size|ep_size", "fsdp2 shards experts like every other weight", ""),
    (r"(use_)?distributed_optimizer|overlap_.*|ddp_.*|align_.*|zero_optimization|stage\d*_.*",
     "fsdp2 always shards gradients and optimiser, and overlaps on its own", ""),
    (r"recompute_.*|moe_layer_recompute|.*activation_checkpointing",
     "activations are recomputed as model_args.disable_gradient_checkpointing says", ""),
    (r"max_grad_norm|clip_grad", "gradients are clipped at the config's own max_grad_norm", ""),
    (r"bf16|fp16|params_dtype|pipeline_dtype", "precision is param_dtype's", ""),
    (r"fp8.*", "fsdp2 trains in param_dtype", "the run was in FP8 and is in param_dtype now: more memory per device"),
    (r"(use_)?flash_attn|attention_backend", "attention is chosen by model_args.attn_implementation", ""),
    (r"moe_aux_loss_coeff?|moe_router_load_balancing_type",
     "fsdp2 trains on the policy's loss alone", "the experts' balance is not part of the loss any more"),
    (r"moe_.*", "experts are the model's own modules", ""),
    (r".*_fusion|.*_fused.*|use_.*_kernel", "kernels are the model's and the device's own", ""),
    (r"train_batch_size|train_micro_batch_size_per_gpu|gradient_(accumulation_steps|clipping)|steps_per_print|.*_breakdown",
     "batches are cut by training_args", ""),
)  # fmt: skip
_UNKNOWN = "an option of {strategy} that fsdp2 does not have"


def split_of(role: Role) -> int:
    """Devices that worked on the same rows under the role's strategy."""
    sizes = [role.options.get(key) or 1 for key in _SPLITS] if role.strategy.startswith("megatron") else []
    return math.prod(size for size in sizes if isinstance(size, int) and size > 0)


def kept_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that fsdp2 has under the same name and with the same meaning."""
    same = {"save_only_model", "offload_policy", "reshard_after_forward", "reduce_dtype"} & set(
        Fsdp2Config.model_fields
    )
    return {key: value for key, value in options.items() if key in same}


def explain(key: str, value: Any, strategy: str) -> tuple[str, str]:
    """Why an option goes, and what is left to a person for that; empty where nothing is."""
    for pattern, reason, left in _REASONS:
        if re.fullmatch(pattern, key):
            return reason, left
    reason = _UNKNOWN.format(strategy=strategy)
    return reason, f"{reason} was {value}: look whether it mattered"
