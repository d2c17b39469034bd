"""The projections of the compact decoder: fused, and laid out for the matrix kernel that is fastest for few rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

PACKED_ENTRIES = 96 * 1024
"""Weights of so many entries or more are packed on plain processors. A product with a packed weight costs 12
microseconds more to call, which small matrices do not win back. For 8 rows and a weight of 2048 x 256 it takes
0.17 ms instead of 0.41, for 32 rows 0.43 instead of 0.70."""


class Linear:
    """One projection.

    A packed weight is a second copy, in blocks as the kernel reads them; `refresh` makes it anew from the first.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.refresh()

    def refresh(self) -> None:
        """The weight has changed in place."""
        self._packed = _packed(self.weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is None:
            return F.linear(x, self.weight, self.bias)
        projected: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return projected

    def added_to(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The projection of x plus the residual, which may be overwritten."""
        if self._packed is None:
            residual.addmm_(x, self.weight.t())
            return residual if self.bias is None else residual.add_(self.bias)
        total: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._packed, self.bias, "add")
        return total


def fused(*linears: nn.Linear) -> Linear:
    """Several projections of the same input as one; their parameters become views of it."""
    sizes = [linear.out_features for linear in linears]
    weight = _fuse([linear.weight for linear in linears], sizes)
    biases = [linear.bias for linear in linears if linear.bias is not None]
    assert len(biases) in (0, len(linears))
    return Linear(weight, _fuse(biases, sizes) if biases else None)


def _fuse(parameters: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    whole = torch.cat([parameter.data for parameter in parameters])
    for parameter, part in zip(parameters, torch.split(whole, list(sizes))):
        parameter.data = part
    return whole


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in the kernel's own layout; None where the plain layout is as fast, or where there is no kernel."""
    is_plain_processor = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    has_kernel = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (is_plain_processor and has_kernel) or weight.numel() < PACKED_ENTRIES:
        return None
    with torch.no_grad():
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return packed
