"""How rows of a batch travel between processes."""

from roll_core.transport.base import RowHandle, RowsGone, Transport

__all__ = ["RowHandle", "RowsGone", "Transport"]
