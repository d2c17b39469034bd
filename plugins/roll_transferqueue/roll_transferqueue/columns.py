"""Columns as TransferQueue's fields, and its fields as columns again.

Every row of a field is sent as plain bytes. What comes back may be dense, jagged or a list, by version and by
content (0.1.7 made jagged the default), so nothing is taken from the form it has: types are those of the handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roll_core.transport import FieldSchema
from roll_core.transport.codec import encode, schema_of
from roll_core.transport.frozen import Bytes, freeze, tensor_of, thaw

if TYPE_CHECKING:
    from roll_core.transport.base import Column

PLACEHOLDER = "_row"
"""A field of rows that have no bytes of their own: TransferQueue knows no row without a field."""


def schema_and_fields(
    columns: Mapping[str, Column], num_rows: int
) -> tuple[tuple[FieldSchema, ...], dict[str, torch.Tensor], int]:
    """What the columns hold, their fields for TransferQueue, and their bytes.

    Raises:
        ValueError: a column that cannot travel.
    """
    schema = tuple(schema_of(name, column, num_rows) for name, column in columns.items())
    fields: dict[str, torch.Tensor] = {}
    num_bytes = 0
    for one in schema:
        column = columns[one.name]
        if one.kind == "object":
            values, offsets = _frozen(column)
            fields[one.name] = torch.nested.nested_tensor_from_jagged(values, offsets)
            num_bytes += values.numel()
        elif num_rows and row_bytes(one):
            (raw,) = encode(one.name, column, num_rows).buffers
            fields[one.name] = tensor_of(raw, torch.uint8, (num_rows, row_bytes(one)))
            num_bytes += raw.nbytes
    if not fields:
        fields[PLACEHOLDER] = torch.zeros(num_rows, 1, dtype=torch.uint8)
        num_bytes += num_rows
    return schema, fields, num_bytes


def column_of(field: FieldSchema, data: Any, order: Sequence[int]) -> Column:
    """The column of a field's rows, of which `data` has each once; private and writable."""
    if field.kind == "object":
        column = np.empty(len(order), dtype=object)
        cells = [_bytes_of(cell) for cell in _unbound(data)]
        for position, row in enumerate(order):
            column[position] = thaw(cells[row])
        return column
    dtype: Any = getattr(torch, field.dtype) if field.kind == "tensor" else np.dtype(field.dtype)
    rows = _gathered(data, order, row_bytes(field)) if data is not None else np.empty(0, np.uint8)
    if field.kind == "tensor":
        return tensor_of(rows.reshape(-1), dtype, (len(order), *field.shape))
    if not rows.size:
        return np.empty((len(order), *field.shape), dtype)
    array: Column = rows.reshape(-1).view(dtype).reshape(len(order), *field.shape)
    return array


def row_bytes(field: FieldSchema) -> int:
    """Bytes of a row of a field that holds no objects."""
    dtype: Any = getattr(torch, field.dtype) if field.kind == "tensor" else np.dtype(field.dtype)
    return int(dtype.itemsize * np.prod(field.shape, dtype=np.int64))


def num_rows_of(data: Any) -> int:
    """How many rows came back."""
    return int(data.size(0)) if isinstance(data, torch.Tensor) else len(data)


def _frozen(column: Any) -> tuple[torch.Tensor, torch.Tensor]:
    pieces: list[Bytes] = []
    lengths = []
    for cell in column:
        parts = freeze(cell)
        pieces += parts
        lengths.append(sum(len(part) for part in parts))
    values = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
    return torch.from_numpy(values), torch.from_numpy(np.cumsum([0, *lengths]))


def _gathered(data: Any, order: Sequence[int], width: int) -> Bytes:
    whole = data.values() if isinstance(data, torch.Tensor) and data.is_nested and data.layout == torch.jagged else data
    rows = np.empty((len(order), width), np.uint8)
    if isinstance(whole, torch.Tensor) and not whole.is_nested:
        torch.index_select(whole.reshape(-1, width), 0, torch.tensor(order), out=torch.from_numpy(rows))
        return rows
    cells = [_bytes_of(cell) for cell in _unbound(data)]
    for position, row in enumerate(order):
        rows[position] = cells[row]
    return rows


def _unbound(data: Any) -> list[Any]:
    return list(data.unbind()) if isinstance(data, torch.Tensor) else list(data)


def _bytes_of(cell: torch.Tensor) -> Bytes:
    array: Bytes = cell.contiguous().reshape(-1).numpy()
    return array
