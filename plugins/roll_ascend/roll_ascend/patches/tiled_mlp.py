"""Feed-forward layers that take their tokens in slices, so that only one slice's activations exist at a time.

A feed-forward layer treats each token by itself and holds several tensors of tokens x intermediate size for
backward. Here forward keeps the layer's input and nothing else; backward computes a slice again, uses it, and goes on
to the next. It costs a second forward of these layers.

Shapes: N tokens, H hidden size, I intermediate size, K experts per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from roll_core import Availability
from roll_core.errors import PluginError
from roll_core.training import ModelPatch

LAYERS = {
    "llama": ("LlamaMLP",),
    "qwen2": ("Qwen2MLP",),
    "qwen3": ("Qwen3MLP",),
    # The second holds all experts of a layer as transformers 5 fuses them.
    "qwen3_moe": ("Qwen3MoeMLP", "Qwen3MoeExperts"),
}
"""Classes of feed-forward layers, by model type."""

ALIASES = {"qwen2_5": "qwen2"}
"""Model types that people write and transformers calls otherwise."""


class TiledMlp(ModelPatch):
    """Slices the tokens of every feed-forward layer, experts included.

    Options: `num_shards`, into how many slices (4); `model_type`, one or several, None for whichever it knows.
    """

    name: ClassVar[str] = "tiled_mlp"

    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        """Models of the types in `LAYERS`."""
        found = model_config.model_type
        if found not in LAYERS:
            return Availability(False, f"it is for models of type {', '.join(LAYERS)}, not {found}")
        return Availability(True, f"{found} is one of {', '.join(LAYERS)}")

    def apply(self, model: Any, options: Mapping[str, Any]) -> None:
        """Change the model's feed-forward layers in place.

        Raises:
            PluginError: `model_type` excludes this model.
        """
        found, asked = model.config.model_type, options.get("model_type")
        wanted = [asked] if isinstance(asked, str) else list(asked or [found])
        if found not in [ALIASES.get(one, one) for one in wanted]:
            shown = ", ".join(wanted)
            reason = f"the model is of type {found}, and strategy_config.model_type allows {shown}"
            raise PluginError(f"model patch '{self.name}' does not fit {type(model).__name__}: {reason}")
        layers = [module for module in model.modules() if type(module).__name__ in LAYERS[found]]
        if not layers:
            reason = f"it has no {' or '.join(LAYERS[found])}"
            raise PluginError(f"model patch '{self.name}' does not fit {type(model).__name__}: {reason}")
        for layer in layers:
            tile(layer, int(options.get("num_shards", 4)))


def tile(layer: Any, num_shards: int) -> None:
    """Let a module take its tokens in slices; once is enough, and a second time changes the number."""
    whole = getattr(layer.forward, "keywords", {}).get("whole", layer.forward)
    layer.forward = partial(_forward, layer=layer, whole=whole, num_shards=num_shards)


def _forward(
    hidden: torch.Tensor,
    *per_token: torch.Tensor,
    layer: nn.Module,
    whole: Callable[..., torch.Tensor],
    num_shards: int,
) -> torch.Tensor:
    """The layer's result for `hidden`, [..., H]; `per_token` are its further inputs, whose first dimension is N."""
    # The parameters are inputs so that autograd asks for their gradients. Backward reads them from the layer again:
    # a unit of FSDP2 frees their memory in between.
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    result = _Tiled.apply(layer, whole, num_shards, 1 + len(per_token), hidden, *per_token, *parameters)  # type: ignore[no-untyped-call]
    assert isinstance(result, torch.Tensor)
    return result


class _Tiled(torch.autograd.Function):
    """whole(tokens) by slices of tokens, with gradients for tokens and parameters."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        layer: nn.Module,
        whole: Callable[..., torch.Tensor],
        num_shards: int,
        num_inputs: int,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        inputs = tensors[:num_inputs]
        ctx.layer, ctx.whole, ctx.num_shards = layer, whole, num_shards
        ctx.save_for_backward(*inputs)
        parts = [whole(*part) for part in _slices(_flat(inputs), num_shards)]
        # Filled rather than reshaped: FSDP2 warns of units that return a view.
        result = parts[0].new_empty(*inputs[0].shape[:-1], parts[0].shape[-1])
        torch.cat(parts, out=result.view(-1, result.shape[-1]))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        inputs: tuple[torch.Tensor, ...] = ctx.saved_tensors
        needed = ctx.needs_input_grad[4 : 4 + len(inputs)]
        parameters = [parameter for parameter in ctx.layer.parameters() if parameter.requires_grad]
        # In float32: a sum of slices in bfloat16 would round once per slice, where the whole layer rounds once.
        sums = [torch.zeros_like(parameter, dtype=_sum_dtype(parameter)) for parameter in parameters]
        of_inputs: list[list[torch.Tensor]] = [[] for _ in inputs]
        rows = (*_flat(inputs), gradient.reshape(-1, gradient.shape[-1]))
        for *part, gradient_part in _slices(rows, ctx.num_shards):
            with torch.enable_grad():
                leaves = [one.detach().requires_grad_(is_needed) for one, is_needed in zip(part, needed)]
                output = ctx.whole(*leaves)
            asked = [leaf for leaf in leaves if leaf.requires_grad] + parameters
            found = iter(torch.autograd.grad(output, asked, gradient_part, allow_unused=True))
            for kept, leaf in zip(of_inputs, leaves):
                if leaf.requires_grad:
                    kept.append(_or_zero(next(found), leaf))
            for total, one in zip(sums, found):
                if one is not None:
                    total.add_(one)
        for_inputs = [torch.cat(parts).view(one.shape) if parts else None for parts, one in zip(of_inputs, inputs)]
        for_parameters = [total.to(parameter.dtype) for total, parameter in zip(sums, parameters)]
        return (None, None, None, None, *for_inputs, *for_parameters)


def _flat(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The inputs with one first dimension, tokens: only the first, hidden states, may have several."""
    return (inputs[0].reshape(-1, inputs[0].shape[-1]), *inputs[1:])


def _slices(tensors: Sequence[torch.Tensor], num_shards: int) -> list[tuple[torch.Tensor, ...]]:
    """At most `num_shards` slices, of equal size but the last: fewer where there are few tokens, and at least one."""
    size = max(1, -(-len(tensors[0]) // num_shards))
    return list(zip(*(torch.split(tensor, size) for tensor in tensors)))


def _sum_dtype(parameter: torch.Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)


def _or_zero(gradient: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if gradient is None else gradient
