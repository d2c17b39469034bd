"""A transport: core's for one process, with a count. One of your own fills `roll_core.transport.Transport`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from roll_core.transport.local import LocalTransport

if TYPE_CHECKING:
    from roll_core.transport import RowHandle
    from roll_core.transport.base import Column


class DemoTransport(LocalTransport):
    """Counts the cells, rows times fields, that were read."""

    def __init__(self, config: BaseModel | None = None) -> None:
        super().__init__(config)
        self.cells_read = 0

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """Read, and count."""
        columns = super().get(handle, fields, copy=copy)
        self.cells_read += len(handle) * len(columns)
        return columns
