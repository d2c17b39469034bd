"""Columns as few buffers of plain bytes, and rows of such buffers as columns again.

No torch tensor is ever pickled: that copies its values several times, and costs more than moving them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roll_core.transport.base import FieldSchema
from roll_core.transport.frozen import Bytes, freeze_cells, tensor_bytes, tensor_of, thaw_cells
from roll_core.transport.layout import Layout

if TYPE_CHECKING:
    from roll_core.transport.base import Column

Rows = slice | np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Encoded:
    """A column as buffers. Those of dense columns share memory with the column."""

    field: FieldSchema
    layout: Layout
    buffers: list[Bytes]

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)


@dataclass(frozen=True)
class Piece:
    """Rows of one stored column, and which rows of the result they are."""

    layout: Layout
    buffers: Sequence[Bytes]
    rows: Rows
    positions: Rows


def schema_of(name: str, column: Column, num_rows: int) -> FieldSchema:
    """What a column holds.

    Raises:
        ValueError: it cannot travel as it is, or has another number of rows.
    """
    if isinstance(column, torch.Tensor) and (column.is_nested or column.layout != torch.strided):
        raise ValueError(f"column '{name}' is not a dense tensor; put ragged rows as an object array")
    if column.ndim == 0 or len(column) != num_rows:
        found = "no rows" if column.ndim == 0 else f"{len(column)} rows"
        raise ValueError(f"column '{name}' has {found}, {num_rows} were announced")
    if isinstance(column, torch.Tensor):
        return FieldSchema(name, "tensor", str(column.dtype).removeprefix("torch."), tuple(column.shape[1:]))
    if column.dtype == object:
        if column.ndim != 1:
            raise ValueError(f"object column '{name}' has {column.ndim} dimensions; it must have one")
        return FieldSchema(name, "object", "object", ())
    if column.dtype.names or column.dtype.hasobject:
        raise ValueError(f"column '{name}' is a structured array; put each of its fields as a column")
    return FieldSchema(name, "array", column.dtype.str, tuple(column.shape[1:]))


def encode(name: str, column: Column, num_rows: int) -> Encoded:
    """A column as buffers.

    Raises:
        ValueError: as of `schema_of`.
        PicklingError, AttributeError, TypeError: objects that cannot be pickled.
    """
    field = schema_of(name, column, num_rows)
    if isinstance(column, torch.Tensor):
        return Encoded(field, Layout("dense"), [tensor_bytes(column)])
    if field.kind == "array":
        return Encoded(field, Layout("dense"), [np.ascontiguousarray(column).reshape(-1).view(np.uint8)])
    cells = list(column)
    types = {type(cell) for cell in cells}
    if types == {str}:
        return Encoded(field, Layout("text"), _text(cells))
    if types == {bytes}:
        return Encoded(field, Layout("blob"), _joined(cells))
    return _ragged(field, cells, types) or Encoded(field, Layout("frozen"), freeze_cells(cells))


def decode(field: FieldSchema, pieces: Sequence[Piece], num_rows: int, *, copy: bool = True) -> Column:
    """The column whose rows are those of the pieces; private, or a view where it can be and `copy` is False."""
    if field.kind == "object":
        column = np.empty(num_rows, dtype=object)
        for piece in pieces:
            targets = range(num_rows)[piece.positions] if isinstance(piece.positions, slice) else piece.positions
            for position, cell in zip(targets, _cells(piece, copy=copy)):
                column[position] = cell
        return column
    dtype: Any = getattr(torch, field.dtype) if field.kind == "tensor" else np.dtype(field.dtype)
    row_bytes = dtype.itemsize * math.prod(field.shape)
    data = _gathered(pieces, num_rows, row_bytes, copy=copy)
    if field.kind == "tensor":
        return tensor_of(data.reshape(-1), dtype, (num_rows, *field.shape))
    if data.size == 0:
        return np.empty((num_rows, *field.shape), dtype)
    array: Column = data.reshape(-1).view(dtype).reshape(num_rows, *field.shape)
    return array


def _gathered(pieces: Sequence[Piece], num_rows: int, row_bytes: int, *, copy: bool) -> Bytes:
    sources = [piece.buffers[0].reshape(-1, row_bytes) if row_bytes else piece.buffers[0] for piece in pieces]
    if row_bytes == 0 or num_rows == 0:
        return np.empty(0, np.uint8)
    if not copy and len(pieces) == 1 and isinstance(pieces[0].rows, slice):
        return sources[0][pieces[0].rows]
    # numpy asks for huge pages and torch does not: touching new memory is what costs most here.
    data = np.empty((num_rows, row_bytes), np.uint8)
    for piece, source in zip(pieces, sources):
        if isinstance(piece.rows, slice):
            data[piece.positions] = source[piece.rows]
        elif isinstance(piece.positions, slice):
            _take(source, piece.rows, data[piece.positions])
        else:
            data[piece.positions] = source[piece.rows]
    return data


def _take(source: Bytes, rows: np.ndarray[Any, np.dtype[np.int64]], out: Bytes) -> None:
    wide = source.shape[1] % 8 == 0 and source.ctypes.data % 8 == 0
    dtype = torch.int64 if wide else torch.uint8
    picked = tensor_of(out.reshape(-1), dtype, (len(rows), -1))
    torch.index_select(tensor_of(source.reshape(-1), dtype, (len(source), -1)), 0, torch.from_numpy(rows), out=picked)


def _text(cells: Sequence[str]) -> list[Bytes]:
    # Text by text into one piece of memory: kept all at once, they would be written to fresh memory twice, and
    # touching fresh memory is most of the cost. What is reserved and not used is never touched.
    widest = 1 if all(map(str.isascii, cells)) else 4
    values, ends, position = np.empty(widest * sum(map(len, cells)), np.uint8), [0], 0
    memory = values.data
    for cell in cells:
        # Half of a surrogate pair is what a cut-off text may end in.
        encoded = cell.encode("utf-8", "surrogatepass")
        memory[position : position + len(encoded)] = encoded
        position += len(encoded)
        ends.append(position)
    return [values[:position], np.array(ends, np.int64).view(np.uint8)]


def _joined(cells: Sequence[bytes]) -> list[Bytes]:
    return [np.frombuffer(b"".join(cells), np.uint8), _offsets([len(cell) for cell in cells])]


def _offsets(lengths: Sequence[int]) -> Bytes:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets.view(np.uint8)


def _ragged(field: FieldSchema, cells: list[Any], types: set[type]) -> Encoded | None:
    if types == {torch.Tensor}:
        if any(cell.is_nested or cell.layout != torch.strided or cell.is_quantized for cell in cells):
            return None
        kind, dtypes = "tensor", {str(cell.dtype).removeprefix("torch.") for cell in cells}
    elif types == {np.ndarray}:
        if any(cell.dtype.hasobject or cell.dtype.names for cell in cells):
            return None
        kind, dtypes = "array", {cell.dtype.str for cell in cells}
    else:
        return None
    dimensions = {cell.ndim for cell in cells}
    if len(dtypes) > 1 or len(dimensions) > 1:
        return None
    raw = tensor_bytes if kind == "tensor" else _array_bytes
    parts = [raw(cell) for cell in cells]
    shapes = np.array([tuple(cell.shape) for cell in cells], np.int64).reshape(-1).view(np.uint8)
    values = np.concatenate(parts) if len(parts) > 1 else parts[0]
    layout = Layout("ragged", kind, dtypes.pop(), dimensions.pop())
    return Encoded(field, layout, [values, _offsets([len(part) for part in parts]), shapes])


def _array_bytes(cell: np.ndarray[Any, Any]) -> Bytes:
    return np.ascontiguousarray(cell).reshape(-1).view(np.uint8) if cell.size else np.empty(0, np.uint8)


def _cells(piece: Piece, *, copy: bool) -> list[Any]:
    values, offsets = piece.buffers[0], piece.buffers[1].view(np.int64)
    num_rows = len(offsets) - 1
    rows = range(num_rows)[piece.rows] if isinstance(piece.rows, slice) else piece.rows.tolist()
    layout, memory = piece.layout, values.data
    if layout.kind == "frozen":
        return thaw_cells(piece.buffers, rows, copy=copy)
    starts, ends = offsets[:-1].tolist(), offsets[1:].tolist()
    if layout.kind == "text":
        return [str(memory[starts[row] : ends[row]], "utf-8", "surrogatepass") for row in rows]
    if layout.kind == "blob":
        return [bytes(memory[starts[row] : ends[row]]) for row in rows]
    shapes = piece.buffers[2].view(np.int64).reshape(num_rows, layout.ndim).tolist()
    build = _cell_builder(layout)
    cells = (values[starts[row] : ends[row]] for row in rows)
    return [build(cell.copy() if copy else cell, tuple(shapes[row])) for cell, row in zip(cells, rows)]


def _cell_builder(layout: Layout) -> Callable[[Bytes, tuple[int, ...]], Any]:
    if layout.cell == "tensor":
        torch_dtype = getattr(torch, layout.dtype)
        return lambda cell, shape: tensor_of(cell, torch_dtype, shape)
    dtype = np.dtype(layout.dtype)
    return lambda cell, shape: cell.view(dtype).reshape(shape) if cell.size else np.empty(shape, dtype)
