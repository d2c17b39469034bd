"""Cutting a step's rows into mini-batches, and a mini-batch's rows into shares of equal work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from roll_core.data import DataProto

Rows = npt.NDArray[np.int64]


def mini_batches(num_rows: int, rows_each: int, epochs: int, seed: int) -> Iterator[Rows]:
    """Row indices of one optimiser step after another.

    One mini-batch per epoch keeps the rows' order; several are drawn from a permutation of the epoch's own. Rows
    that filters left over form a last, smaller mini-batch.
    """
    for epoch in range(epochs):
        order = np.arange(num_rows)
        if num_rows > rows_each:
            order = np.random.default_rng([seed, epoch]).permutation(num_rows)
        for start in range(0, num_rows, rows_each):
            yield order[start : start + rows_each]


def shares(lengths: torch.Tensor, num_shares: int) -> list[Rows]:
    """Rows for each rank: dealt longest first, back and forth, so that every rank gets about the same tokens.

    Shapes: lengths [B], in tokens. A share may be empty where there are fewer rows than ranks.
    """
    order = torch.argsort(lengths, descending=True, stable=True).numpy()
    dealt: list[list[int]] = [[] for _ in range(num_shares)]
    for turn, row in enumerate(order):
        lap, position = divmod(turn, num_shares)
        dealt[position if lap % 2 == 0 else num_shares - 1 - position].append(int(row))
    return [np.array(sorted(rows), dtype=np.int64) for rows in dealt]


def undeal(parts: Sequence[DataProto], rows: Sequence[Rows]) -> DataProto:
    """What the ranks made of their shares, back in the order of the batch."""
    return DataProto.concat(parts).index(np.argsort(np.concatenate(rows)))
