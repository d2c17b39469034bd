"""Rows in the memory of one process: the simplest transport, for tests and for runs without workers."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from roll_core.errors import RollError
from roll_core.transport.base import FieldSchema, RowHandle, RowsGone, Transport, TransportStats
from roll_core.transport.codec import schema_of
from roll_core.transport.frozen import freeze, thaw

if TYPE_CHECKING:
    from roll_core.transport.base import Column


class LocalTransportConfig(BaseModel):
    """There is nothing to set."""

    model_config = ConfigDict(extra="forbid")


class LocalTransport(Transport):
    """Keeps each row's fields on their own, so that a cleared row is freed at once.

    Objects are kept as bytes, as any transport between processes would: what cannot be pickled is refused here too.
    """

    Config: ClassVar[type[BaseModel]] = LocalTransportConfig
    reaches_workers: ClassVar[bool] = False

    def __init__(self, config: BaseModel | None = None) -> None:
        self.config = config or LocalTransportConfig()
        # A handle of another transport must find nothing here rather than someone else's rows.
        self._prefix = uuid.uuid4().hex[:8]
        self._puts = itertools.count()  # Threads may put at once.
        self._rows: dict[str, dict[str, Any]] = {}
        self._partitions: dict[str, list[str]] = {}

    def put(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> RowHandle:
        """Store copies of the columns' rows."""
        schema = tuple(schema_of(name, column, num_rows) for name, column in columns.items())
        cells = {name: [_freeze(column, row) for row in range(num_rows)] for name, column in columns.items()}
        put = f"{self._prefix}.{next(self._puts)}"
        row_ids = tuple(f"{put}.{row}" for row in range(num_rows))
        for row, row_id in enumerate(row_ids):
            self._rows[row_id] = {name: column[row] for name, column in cells.items()}
        self._partitions.setdefault(partition, []).extend(row_ids)
        return RowHandle(row_ids, schema)

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """Copies of the rows' fields, in the handle's order, whether asked for or not."""
        wanted = handle.wanted(fields)
        gone = [row_id for row_id in dict.fromkeys(handle.row_ids) if row_id not in self._rows]
        if gone:
            raise RowsGone(
                f"{len(gone)} of {len(set(handle.row_ids))} rows are not here, the first is {gone[0]}\n"
                "  they were cleared, or put into another transport"
            )
        rows = [self._rows[row_id] for row_id in handle.row_ids]
        return {field.name: _thaw(field, [row[field.name] for row in rows]) for field in wanted}

    def clear(self, handle: RowHandle) -> None:
        """Free rows; those already gone are no error."""
        for row_id in handle.row_ids:
            self._rows.pop(row_id, None)

    def clear_partition(self, partition: str) -> None:
        """Free the rows of a partition."""
        for row_id in self._partitions.pop(partition, ()):
            self._rows.pop(row_id, None)

    def stats(self) -> TransportStats:
        """Rows held, and the bytes of their cells."""
        return TransportStats(
            len(self._rows), sum(_num_bytes(cell) for row in self._rows.values() for cell in row.values())
        )

    def close(self) -> None:
        """Free all rows."""
        self._rows.clear()
        self._partitions.clear()

    def __reduce__(self) -> NoReturn:
        raise RollError(
            "the transport 'local' is the memory of one process and cannot be sent to another\n"
            "  try: transfer_backend: {backend_name: ray}"
        )


def _freeze(column: Column, row: int) -> Any:
    if isinstance(column, torch.Tensor):
        return column[row].detach().cpu().clone()
    if column.dtype != object:
        return np.array(column[row], dtype=column.dtype)
    return np.concatenate(freeze(column[row]))


def _thaw(field: FieldSchema, cells: Sequence[Any]) -> Column:
    if field.kind == "tensor":
        if not cells:
            return torch.empty((0, *field.shape), dtype=getattr(torch, field.dtype))
        return torch.stack(list(cells))
    if field.kind == "array":
        return np.stack(cells) if cells else np.empty((0, *field.shape), dtype=np.dtype(field.dtype))
    column = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        column[row] = thaw(cell)
    return column


def _num_bytes(cell: Any) -> int:
    return cell.numel() * cell.element_size() if isinstance(cell, torch.Tensor) else int(cell.nbytes)
