"""How rows of a batch travel between processes."""

from roll_core.transport.base import FieldSchema, RowHandle, RowsGone, Transport, TransportStats

__all__ = ["FieldSchema", "RowHandle", "RowsGone", "Transport", "TransportStats"]
