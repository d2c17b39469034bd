"""How the bytes of an encoded column are laid out. Plain data, for processes that never look into the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roll_core.transport.base import FieldSchema


@dataclass(frozen=True)
class Layout:
    """Which buffers a column has, each of plain bytes.

    - dense: the values, row by row
    - ragged: the values | where each row's begin, int64[n+1], in bytes | shapes, int64[n, ndim]
    - text: UTF-8 | where each row's begins, int64[n+1]
    - blob: bytes | where each row's begin, int64[n+1]
    - frozen: what `roll_core.transport.frozen.freeze_cells` returns

    `cell` ("tensor" or "array"), `dtype` and `ndim` are those of a ragged column's cells.
    """

    kind: Literal["dense", "ragged", "text", "blob", "frozen"]
    cell: str = ""
    dtype: str = ""
    ndim: int = 0


@dataclass(frozen=True)
class StoredColumn:
    """A column in a chunk: its buffers are those from `first` to `end` in one of the chunk's groups of buffers."""

    field: FieldSchema
    layout: Layout
    group: int
    first: int
    end: int
