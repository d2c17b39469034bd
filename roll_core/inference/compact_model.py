"""Dense Llama, Qwen2 and Qwen3 models as plain matrices, for few and large kernel calls per token.

Projections of the same input are fused into one matrix. The module's own parameters become views of it, so copying
new weights into the module changes what is computed here, once what is packed or copied was made anew.

Shapes: T tokens of any rows, E hidden size, R columns of the residual stream, Q query heads, H key heads, D head size,
h = D / 2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from roll_core.inference.linear import Linear, fused
from roll_core.inference.rms_norm import ResidualNorm

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Model types computed here, each with the only class whose code was compared."""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not change with the length of a text."""


def why_not_compact(model: nn.Module) -> str | None:
    """The reason why this model must be computed by its own code; None where this one does exactly the same."""
    config: Any = model.config
    if ARCHITECTURES.get(config.model_type) != type(model).__name__:
        return f"it is written for {', '.join(ARCHITECTURES.values())}, and the model is a {type(model).__name__}"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds or getattr(config, "use_sliding_window", False):
        return f"it has full attention only, and the model has {', '.join(sorted(kinds)) or 'a sliding window'}"
    if config.hidden_act != "silu":
        return f"it has the silu activation, and the model has {config.hidden_act}"
    rope_type = model.get_submodule("model.rotary_emb").rope_type
    if rope_type not in ROPE_TYPES:
        return f"it has rotary embeddings of type {', '.join(ROPE_TYPES)}, and the model has {rope_type}"
    if any(type(module) is not nn.Linear for module in model.modules() if isinstance(module, nn.Linear)):
        return "it multiplies with plain matrices, and the model has linear layers of another kind"
    return None


class CompactLayer:
    """The weights of one decoder layer, and what of it needs no other token."""

    def __init__(self, layer: Any, norm: ResidualNorm, num_query_heads: int, num_key_heads: int, head_dim: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.query_heads, self.key_heads, self.head_dim = num_query_heads, num_key_heads, head_dim
        self.norm_in, self.norm_out = layer.input_layernorm, layer.post_attention_layernorm
        self.norm = norm
        self.qkv = fused(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = fused(attention.o_proj)
        self.gate_up = fused(mlp.gate_proj, mlp.up_proj)
        self.down = fused(mlp.down_proj)
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        self.copy_head_norms()

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The layer's projections, in the order they are used."""
        return self.qkv, self.out, self.gate_up, self.down

    def copy_head_norms(self) -> None:
        """Read the head norms again, which are kept as one weight per query and key head, times sqrt(D)."""
        self.head_norm: torch.Tensor | None = None
        if self.head_norms is not None:
            query_norm, key_norm = self.head_norms
            weights = [query_norm.weight.expand(self.query_heads, -1), key_norm.weight.expand(self.key_heads, -1)]
            self.head_norm = torch.cat(weights) * self.head_dim**0.5
            self.head_norm_eps = self.head_dim * query_norm.variance_epsilon

    def project(self, x_TR: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys [T, Q + H, D], not yet rotated, and values [T, H, D]."""
        heads = self.qkv(self.norm(x_TR, self.norm_in.weight)).view(len(x_TR), -1, self.head_dim)
        query_key, value = torch.split(heads, [self.query_heads + self.key_heads, self.key_heads], dim=1)
        if self.head_norm is not None:
            # x / sqrt(mean + epsilon) = sqrt(D) * x / sqrt(sum + D * epsilon): on plain processors in two thirds of
            # the time that torch's rms_norm takes.
            sums = torch.linalg.vecdot(query_key, query_key).add_(self.head_norm_eps)
            query_key = (query_key * sums.rsqrt_().unsqueeze(-1)).mul_(self.head_norm)
        return query_key, value

    def finish(self, x_TR: torch.Tensor, attended: torch.Tensor) -> None:
        """Turn the layer's input into its output, in place, by what its heads attended to [T, Q * D]."""
        x_TE = x_TR[:, : self.norm.size]
        self.out.add_to(x_TE, attended)
        gate, up = self.gate_up(self.norm(x_TR, self.norm_out.weight)).chunk(2, dim=-1)
        self.down.add_to(x_TE, F.silu(gate).mul_(up))


class Rotation:
    """Rotary position embeddings, as transformers computes their frequencies (Su et al. 2021)."""

    def __init__(self, rotary: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.frequencies = rotary.inv_freq.to(device, torch.float32)
        self.scaling = rotary.attention_scaling
        self.dtype = dtype
        # A complex product is the fastest form on plain processors; other devices may lack it.
        self.is_complex = dtype is torch.float32 and device.type == "cpu"
        self.table = self._rows(1)

    def _rows(self, num_positions: int) -> torch.Tensor:
        positions = torch.arange(num_positions, device=self.frequencies.device, dtype=torch.float32)
        angles = positions[:, None] * self.frequencies
        cos, sin = angles.cos() * self.scaling, angles.sin() * self.scaling
        return torch.complex(cos, sin) if self.is_complex else torch.stack([cos, sin], dim=1).to(self.dtype)

    def at(self, positions: torch.Tensor, limit: int) -> torch.Tensor:
        """The rotation of each position; all of them are below `limit`."""
        if limit > len(self.table):
            self.table = self._rows(2 * limit)
        return self.table.index_select(0, positions)

    def apply(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """Rotate heads [T, heads, D]. The order of the D entries may change: queries and keys stay comparable."""
        first, second = x.chunk(2, dim=-1)
        if self.is_complex:
            turned = torch.complex(first, second).mul_(rotation.unsqueeze(1))
            return torch.view_as_real(turned).flatten(-2)
        cos, sin = rotation.unsqueeze(2).unbind(1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
