"""Experts that every rank runs in the same order, whatever its tokens are routed to.

An expert that is a unit of FSDP2 is gathered from all ranks when it runs. A router sends each rank's tokens to other
experts, so ranks would gather different experts at the same time: sizes that differ end in an error or in ranks that
wait for each other for ever, and sizes that agree in weights mixed from two experts, which is worse. Here an expert
without tokens runs on one token whose share in the result is 0, and all ranks gather the same experts in one order,
forward and backward.

Shapes: N tokens, K experts per token, H hidden size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any, ClassVar

import torch
from torch import nn

from roll_core import Availability
from roll_core.errors import PluginError
from roll_core.training import ModelPatch

BLOCKS = {"qwen3_moe": "Qwen3MoeSparseMoeBlock"}
"""The class of a layer's router and experts, by model type."""


class MoeExpertPatch(ModelPatch):
    """Runs all experts of each mixture-of-experts layer on every rank.

    transformers 4.57 holds each expert as a module, and so does a model that was patched. transformers 5 fuses the
    experts of a layer into two tensors; these are split into the modules that 4.57 has, with the same class and
    names, so that `wrap_policy.moe_experts` names them in either version.
    """

    name: ClassVar[str] = "expert_patch"

    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        """Models of the types in `BLOCKS` that have a layer with experts."""
        found = model_config.model_type
        if found not in BLOCKS:
            return Availability(False, f"it is for models of type {', '.join(BLOCKS)}, not {found}")
        sparse = [index for index in range(model_config.num_hidden_layers) if _has_experts(model_config, index)]
        if not sparse:
            return Availability(False, f"none of its {model_config.num_hidden_layers} layers has experts")
        return Availability(True, f"{len(sparse)} layers have experts")

    def apply(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        """Change every mixture-of-experts layer in place. It has no options.

        Raises:
            PluginError: the experts are neither a list of modules nor fused as transformers 5 does.
        """
        classes = set(BLOCKS.values())
        for name, block in model.named_modules():
            if type(block).__name__ in classes:
                _change(name, block, model.config)


def _has_experts(config: Any, layer: int) -> bool:
    is_sparse = config.num_experts > 0 and (layer + 1) % config.decoder_sparse_step == 0
    return is_sparse and layer not in config.mlp_only_layers


def _change(name: str, block: Any, config: Any) -> None:
    if isinstance(block.experts, LockstepExperts):
        return
    if isinstance(block.experts, nn.ModuleList):
        block.experts = LockstepExperts(block.experts)
        # A plain gate is that of transformers 4, whose block goes through the experts itself.
        if isinstance(block.gate, nn.Linear):
            block.forward = MethodType(_forward_of_block, block)
    elif {"gate_up_proj", "down_proj"} <= set(dict(block.experts.named_parameters(recurse=False))):
        # The block of transformers 5 calls its experts as a module, which is all that changes.
        block.experts = LockstepExperts(separate(block.experts, config))
    else:
        found = ", ".join(child for child, _ in block.experts.named_parameters())
        raise PluginError(f"model patch '{MoeExpertPatch.name}' knows no experts such as those of {name}: {found}")


class LockstepExperts(nn.ModuleList):
    """Experts of which each runs once per forward, with or without tokens."""

    def forward(self, hidden: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The sum over a token's K experts of weight times output.

        Args:
            hidden: [N, H]; N is at least 1.
            indices: the experts of each token, [N, K].
            weights: how much each of them counts, [N, K].

        Returns:
            [N, H] in the precision of `hidden`.
        """
        result = torch.zeros_like(hidden)
        for number, expert in enumerate(self):
            tokens, slots = torch.where(indices == number)
            if len(tokens):
                share = weights[tokens, slots, None]
            else:
                # Read from `hidden` like any other token, so that backward takes the same course on every rank.
                tokens, share = tokens.new_zeros(1), weights[:1, :1] * 0
            result.index_add_(0, tokens, (expert(hidden[tokens]) * share).to(result.dtype))
        return result


def _forward_of_block(block: Any, hidden_BLH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The block of transformers 4.57 with its experts called as one module: the result, and the router's logits.

    A softmax over all experts in float32, its K largest values, which add up to 1 where `norm_topk_prob` is set.
    """
    hidden = hidden_BLH.reshape(-1, hidden_BLH.shape[-1])
    logits = block.gate(hidden)
    weights, indices = torch.topk(torch.softmax(logits, dim=-1, dtype=torch.float32), block.top_k, dim=-1)
    if block.norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return block.experts(hidden, indices, weights.to(hidden.dtype)).reshape(hidden_BLH.shape), logits


def separate(fused: Any, config: Any) -> list[nn.Module]:
    """The experts of a layer as modules of their own.

    `fused.gate_up_proj` is [experts, 2I, H], the gate's rows first, and `fused.down_proj` is [experts, H, I].
    """
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP

    up_rows = fused.gate_up_proj.shape[1] // 2
    experts: list[nn.Module] = []
    for number in range(fused.gate_up_proj.shape[0]):
        with torch.device("meta"):
            expert = Qwen3MoeMLP(config, intermediate_size=up_rows)
        expert.act_fn = fused.act_fn
        gate, up = fused.gate_up_proj[number].split(up_rows)
        for name, rows in (("gate_proj", gate), ("up_proj", up), ("down_proj", fused.down_proj[number])):
            # A copy: the fused tensors are to be freed, layer by layer.
            weight = nn.Parameter(rows.detach().clone(), requires_grad=fused.down_proj.requires_grad)
            getattr(expert, name).weight = weight
        experts.append(expert.train(fused.training))
    return experts
