"""The projections of the compact decoder: fused, and laid out for the matrix kernel that is fastest for few rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future

import torch
from torch import nn
from torch.nn import functional as F

PACKED_ENTRIES = 96 * 1024
"""Weights of so many entries or more are packed on plain processors. A product with a packed weight costs 12
microseconds more to call, which small matrices do not win back. For 8 rows and a weight of 2048 x 256 it takes
0.17 ms instead of 0.41, for 32 rows 0.43 instead of 0.70."""


class Linear:
    """One projection.

    A packed weight is a second copy, in blocks as the kernel reads them, made anew by `pack` whenever the weight has
    changed in place.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.is_packed = _is_faster_packed(weight)
        self._packed: torch.Tensor | None = None
        self._packing: Future[None] | None = None
        self.pack()

    def pack(self) -> None:
        """Pack the weight as it is now, unless it is one that is used as it is."""
        if self.is_packed:
            # Let go of the old copy first, so that the new one can have its memory: fresh pages cost half as much
            # again as packing does.
            self._packed = None
            self._packed = _packed(self.weight)

    def pack_in(self, pool: Executor) -> None:
        """Let a pool's thread pack the weight; the next product waits for it."""
        self._packing = pool.submit(self.pack)

    def wait(self) -> None:
        """Return when the weight is packed."""
        if self._packing is not None:
            self._packing.result()
            self._packing = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.wait()
        if self._packed is None:
            return F.linear(x, self.weight, self.bias)
        projected: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return projected

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        """Add the projection of x to the residual, in place."""
        self.wait()
        if self._packed is None:
            residual.addmm_(x, self.weight.t())
            if self.bias is not None:
                residual.add_(self.bias)
        else:
            residual.add_(self(x))


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


def _is_faster_packed(weight: torch.Tensor) -> bool:
    """Whether there is a kernel for packed weights, and this one is so large that it pays."""
    is_plain_processor = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    has_kernel = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_plain_processor and has_kernel and weight.numel() >= PACKED_ENTRIES


def _packed(weight: torch.Tensor) -> torch.Tensor:
    """The weight in the kernel's own layout."""
    with torch.no_grad():
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return packed
