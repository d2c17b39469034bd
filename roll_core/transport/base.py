"""The seam for moving batches: rows x fields go in, the same rows x fields come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel

from roll_core.errors import RollError

if TYPE_CHECKING:
    import numpy as np
    import torch

    Column = torch.Tensor | np.ndarray[Any, Any]


class RowsGone(RollError):
    """Rows were asked for that have been cleared, or were never put."""


class DataLost(RollError):
    """Rows were put and not cleared, and cannot be had: a process that held them ended."""


class TransportTimeout(RollError):
    """A transport did not answer in time."""


class CapacityError(RollError):
    """A put would exceed what the transport may hold, and nothing was cleared in time."""


@dataclass(frozen=True)
class FieldSchema:
    """What a field holds, so that no rows of it have a type too.

    `kind` is "tensor", "array" or "object"; `dtype` is torch's or numpy's name of it ("bfloat16", "int64"), and
    `shape` that of one row. Object fields have dtype "object" and shape ().
    """

    name: str
    kind: Literal["tensor", "array", "object"]
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RowHandle:
    """Ids of rows, in order, and what their fields hold. It has no payload and survives pickling."""

    row_ids: tuple[str, ...]
    schema: tuple[FieldSchema, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self.schema)

    def wanted(self, fields: Sequence[str] | None) -> list[FieldSchema]:
        """The schemas of some fields, or of all, in the order asked.

        Raises:
            KeyError: a field the handle does not have.
        """
        by_name = {field.name: field for field in self.schema}
        for name in fields or ():
            if name not in by_name:
                raise KeyError(f"no field named '{name}'; the rows have: {', '.join(by_name) or 'none'}")
        return list(self.schema) if fields is None else [by_name[name] for name in fields]

    def __len__(self) -> int:
        return len(self.row_ids)


@dataclass(frozen=True)
class TransportStats:
    """What a transport holds right now; after a step with nothing leaked, nothing.

    Memory may be freed for many rows at once, so bytes may stay where some rows of a put have been cleared.
    """

    rows: int
    num_bytes: int


class Transport(ABC):
    """Moves bytes and changes nothing: dtype, order and raggedness come out as they went in.

    Made on the driver with its Config. Pickled, it becomes a client of the same store in another process, if
    `reaches_workers`. No operation waits without end; each raises DataLost or TransportTimeout instead.
    """

    Config: ClassVar[type[BaseModel]]
    """Validates `transfer_backend.backend_config`; unknown keys are errors."""

    reaches_workers: ClassVar[bool] = True
    """Whether other processes can be clients."""

    @classmethod
    def num_cpus(cls, config: BaseModel) -> int:
        """Logical CPUs of Ray that its own processes ask for; a private session is given as many more."""
        return 0

    @abstractmethod
    def put(self, columns: Mapping[str, Column], num_rows: int, *, partition: str = "") -> RowHandle:
        """Store a snapshot of columns that all have `num_rows` rows; later changes to them are not seen.

        Tensors come back in the memory of the processor, detached. Rows of a partition can be cleared together.

        Raises:
            ValueError: a column of another length, or one whose rows are ragged but not objects; nothing is stored.
            CapacityError: no room, and none was made in time; nothing is stored.
        """

    @abstractmethod
    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Column]:
        """The fields' columns, rows in the handle's order, repeated where it repeats them.

        They are private and writable, unless `copy` is False: then they may be views of memory that all readers
        share, and writing to them changes the data for everyone. For readers who only read, or move on to a device.

        Raises:
            KeyError: a field the handle does not have.
            RowsGone: any row was cleared; never fewer rows than asked.
            DataLost: a process that held rows has ended.
        """

    @abstractmethod
    def clear(self, handle: RowHandle) -> None:
        """Free rows, for all processes when it returns; repeated and already cleared rows are allowed."""

    @abstractmethod
    def clear_partition(self, partition: str) -> None:
        """Free all rows that were put with this partition, also those whose handle was lost."""

    @abstractmethod
    def stats(self) -> TransportStats:
        """Rows and bytes held, for leak tests."""

    @abstractmethod
    def close(self) -> None:
        """Free everything if this process made the store; otherwise only leave it."""
