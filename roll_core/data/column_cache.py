"""Tensors of rows that were read before, up to a bound in bytes; what was not used for longest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch

from roll_core.transport import FieldSchema
from roll_core.transport.frozen import Bytes, tensor_bytes, tensor_of

Key = tuple[str, str]
"""Field and row id."""


@dataclass(frozen=True, eq=False)
class _Block:
    """A column as it was read: its rows go together, as they share memory."""

    keys: tuple[Key, ...]
    rows: Bytes


class ColumnCache:
    """Knows rows of tensor fields by id. Gives and takes copies, so that nobody writes into what is kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._where: dict[Key, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def find(self, field: FieldSchema, row_ids: tuple[str, ...]) -> torch.Tensor | None:
        """The field's rows, if all of them are here."""
        if field.kind != "tensor" or not self._where or not row_ids:
            return None
        with self._lock:
            found = [self._where.get((field.name, row_id)) for row_id in row_ids]
            places = [place for place in found if place is not None]
            if len(places) < len(found):
                return None
            by_block: dict[int, tuple[list[int], list[int]]] = {}
            for position, (block, row) in enumerate(places):
                positions, rows = by_block.setdefault(block, ([], []))
                positions.append(position)
                rows.append(row)
            row_bytes = self._blocks[places[0][0]].rows.shape[1]
            data = np.empty((len(row_ids), row_bytes), np.uint8)
            for block, (positions, rows) in by_block.items():
                self._blocks.move_to_end(block)
                data[positions] = self._blocks[block].rows[rows]
        return tensor_of(data.reshape(-1), getattr(torch, field.dtype), (len(row_ids), *field.shape))

    def keep(self, field: str, row_ids: tuple[str, ...], column: torch.Tensor) -> None:
        """Remember a column's rows, forgetting others if there is no room."""
        data = tensor_bytes(column)
        if not 0 < data.nbytes <= self.max_bytes:
            return
        # Bytes, as some types of numbers cannot be indexed.
        block = _Block(tuple((field, row_id) for row_id in row_ids), data.reshape(len(row_ids), -1).copy())
        with self._lock:
            while self.num_bytes + data.nbytes > self.max_bytes:
                self._forget_oldest()
            self._blocks[id(block)] = block
            self.num_bytes += data.nbytes
            self._where |= {key: (id(block), row) for row, key in enumerate(block.keys)}

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._blocks.clear()
            self._where.clear()
            self.num_bytes = 0

    def _forget_oldest(self) -> None:
        name, block = self._blocks.popitem(last=False)
        self.num_bytes -= block.rows.nbytes
        for key in block.keys:
            if self._where.get(key, (None, 0))[0] == name:
                del self._where[key]
