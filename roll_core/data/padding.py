"""Rows of different lengths as one tensor, and which columns of a batch become such tensors when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from roll_core.data.data_proto import DataProto

PADDINGS = "paddings"
"""The key of `meta_info` under which a batch by reference says how its ragged columns are padded."""


@dataclass(frozen=True)
class Padding:
    """How one ragged column is padded: its width in the step's batch, which a few of its rows need not reach."""

    width: int
    value: float
    left: bool = False


def pad(rows: Sequence[torch.Tensor], width: int, value: float, *, left: bool = False) -> torch.Tensor:
    """Rows of different lengths as one tensor [B, width], filled up on the right, or on the left."""
    padded = torch.full((len(rows), width), value, dtype=rows[0].dtype)
    for row, tensor in enumerate(rows):
        if left:
            padded[row, width - len(tensor) :] = tensor
        else:
            padded[row, : len(tensor)] = tensor
    return padded


def response_mask(lengths: torch.Tensor, width: int) -> torch.Tensor:
    """True at the tokens of responses: bool [B, width]."""
    return torch.arange(width)[None, :] < lengths[:, None]


def padded(batch: DataProto) -> DataProto:
    """A batch that was read by reference, as it looks where it travels inside the calls.

    Ragged columns that its meta_info has paddings for become tensors, and `response_mask` [B, R] is made from
    `response_lengths` where it is not a column of its own. A batch without paddings is returned as it is.
    """
    paddings: Mapping[str, Padding] = batch.meta_info.get(PADDINGS, {})
    if not paddings:
        return batch
    objects = dict(batch.non_tensor_batch)
    columns = {name: _padded(list(objects.pop(name)), paddings[name]) for name in paddings if name in objects}
    tensors = {**batch.batch, **columns}
    if "response_lengths" in tensors and "response_mask" not in tensors:
        tensors["response_mask"] = response_mask(tensors["response_lengths"], paddings["responses"].width)
    meta = {name: value for name, value in batch.meta_info.items() if name != PADDINGS}
    return DataProto(tensors, objects, meta)


def _padded(rows: Sequence[torch.Tensor], padding: Padding) -> torch.Tensor:
    if len(rows) == 0:
        # Ranks without rows: the type is that of any other rank's column.
        dtype = {float: torch.float32, bool: torch.bool, int: torch.int64}[type(padding.value)]
        return torch.empty((0, padding.width), dtype=dtype)
    return pad(rows, padding.width, padding.value, left=padding.left)
