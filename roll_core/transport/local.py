"""Rows in the memory of one process: the simplest transport, for tests and for runs without workers."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from roll_core.transport.base import FieldSchema, RowHandle, RowsGone, Transport, TransportStats

if TYPE_CHECKING:
    from roll_core.transport.base import Column


class LocalTransportConfig(BaseModel):
    """There is nothing to set."""

    model_config = ConfigDict(extra="forbid")


class LocalTransport(Transport):
    """Keeps each row's fields on their own, so that a cleared row is freed at once.

    Objects are kept pickled, as any transport between processes would: what cannot be pickled is refused here too.
    """

    Config: ClassVar[type[BaseModel]] = LocalTransportConfig

    def __init__(self, config: BaseModel | None = None) -> None:
        self.config = config or LocalTransportConfig()
        # A handle of another transport must find nothing here rather than someone else's rows.
        self._prefix = uuid.uuid4().hex[:8]
        self._num_puts = 0
        self._rows: dict[str, dict[str, Any]] = {}

    def put(self, columns: Mapping[str, Column], num_rows: int) -> RowHandle:
        """Store copies of the columns' rows."""
        schema = tuple(_schema_of(name, column, num_rows) for name, column in columns.items())
        frozen = {name: [_freeze(column, row) for row in range(num_rows)] for name, column in columns.items()}
        self._num_puts += 1
        row_ids = tuple(f"{self._prefix}.{self._num_puts}.{row}" for row in range(num_rows))
        for row, row_id in enumerate(row_ids):
            self._rows[row_id] = {name: cells[row] for name, cells in frozen.items()}
        return RowHandle(row_ids, schema)

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None) -> dict[str, Column]:
        """Copies of the rows' fields, in the handle's order."""
        by_name = {field.name: field for field in handle.schema}
        wanted = list(by_name) if fields is None else list(fields)
        unknown = [name for name in wanted if name not in by_name]
        if unknown:
            raise KeyError(f"no field named '{unknown[0]}'; the rows have: {', '.join(by_name) or 'none'}")
        gone = [row_id for row_id in dict.fromkeys(handle.row_ids) if row_id not in self._rows]
        if gone:
            raise RowsGone(
                f"{len(gone)} of {len(set(handle.row_ids))} rows are not here, the first is {gone[0]}\n"
                "  they were cleared, or put into another transport"
            )
        rows = [self._rows[row_id] for row_id in handle.row_ids]
        return {name: _thaw(by_name[name], [row[name] for row in rows]) for name in wanted}

    def clear(self, handle: RowHandle) -> None:
        """Free rows; those already gone are no error."""
        for row_id in handle.row_ids:
            self._rows.pop(row_id, None)

    def stats(self) -> TransportStats:
        """Rows held, and the bytes of their cells."""
        return TransportStats(
            len(self._rows), sum(_num_bytes(cell) for row in self._rows.values() for cell in row.values())
        )

    def close(self) -> None:
        """Free all rows."""
        self._rows.clear()


def _schema_of(name: str, column: Column, num_rows: int) -> FieldSchema:
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
    return FieldSchema(name, "array", column.dtype.str, tuple(column.shape[1:]))


def _freeze(column: Column, row: int) -> Any:
    if isinstance(column, torch.Tensor):
        return column[row].detach().clone()
    if column.dtype != object:
        return np.array(column[row], dtype=column.dtype)
    cell = column[row]
    # A tensor that is a view would be pickled with all of the memory it is a view of.
    return pickle.dumps(cell.detach().clone() if isinstance(cell, torch.Tensor) else cell, protocol=5)


def _thaw(field: FieldSchema, cells: Sequence[Any]) -> Column:
    if field.kind == "tensor":
        if not cells:
            return torch.empty((0, *field.shape), dtype=getattr(torch, field.dtype))
        return torch.stack(list(cells))
    if field.kind == "array":
        return np.stack(cells) if cells else np.empty((0, *field.shape), dtype=np.dtype(field.dtype))
    column = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        column[row] = pickle.loads(cell)
    return column


def _num_bytes(cell: Any) -> int:
    if isinstance(cell, torch.Tensor):
        return cell.numel() * cell.element_size()
    return len(cell) if isinstance(cell, bytes) else int(cell.nbytes)
