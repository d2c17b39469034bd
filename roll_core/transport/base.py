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

    def __len__(self) -> int:
        return len(self.row_ids)


@dataclass(frozen=True)
class TransportStats:
    """What a transport holds right now; after a step with nothing leaked, nothing."""

    rows: int
    num_bytes: int


class Transport(ABC):
    """Moves bytes and changes nothing: dtype, order and raggedness come out as they went in."""

    Config: ClassVar[type[BaseModel]]
    """Validates `transfer_backend.backend_config`; unknown keys are errors."""

    @abstractmethod
    def put(self, columns: Mapping[str, Column], num_rows: int) -> RowHandle:
        """Store a snapshot of columns that all have `num_rows` rows; later changes to them are not seen.

        Raises:
            ValueError: a column of another length, or one whose rows are ragged but not objects; nothing is stored.
        """

    @abstractmethod
    def get(self, handle: RowHandle, fields: Sequence[str] | None = None) -> dict[str, Column]:
        """Private copies of the fields, rows in the handle's order, repeated where it repeats them.

        Raises:
            KeyError: a field the handle does not have.
            RowsGone: any row was cleared; never fewer rows than asked.
        """

    @abstractmethod
    def clear(self, handle: RowHandle) -> None:
        """Free rows; repeated and already cleared rows are allowed."""

    @abstractmethod
    def stats(self) -> TransportStats:
        """Rows and bytes held, for leak tests."""

    @abstractmethod
    def close(self) -> None:
        """Free everything."""
