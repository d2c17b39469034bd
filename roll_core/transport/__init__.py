"""How rows of a batch travel between processes."""

from roll_core.transport.base import (
    CapacityError,
    DataLost,
    FieldSchema,
    RowHandle,
    RowsGone,
    Transport,
    TransportStats,
    TransportTimeout,
)

__all__ = [
    "CapacityError",
    "DataLost",
    "FieldSchema",
    "RowHandle",
    "RowsGone",
    "Transport",
    "TransportStats",
    "TransportTimeout",
]
