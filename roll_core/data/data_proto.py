"""The batch that travels between roles: tensors, object columns and facts about the whole.

A plain dict of tensors rather than a TensorDict: importing tensordict costs every worker process over a second at
start-up (benchmarks/startup.py), and what a batch needs of it is one index per column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

Index = slice | Sequence[int] | np.ndarray[Any, Any] | torch.Tensor


def row_numbers(rows: Any, length: int) -> np.ndarray[Any, Any]:
    """Rows chosen by integer indices or by a boolean mask, as numbers from 0 on.

    Raises:
        IndexError: a mask of another length, or an index beyond the rows.
    """
    picked = np.asarray(rows)
    if picked.dtype == bool:
        if len(picked) != length:
            raise IndexError(f"a mask of {len(picked)} for {length} rows")
        picked = np.flatnonzero(picked)
    picked = picked.astype(np.int64)
    if len(picked) and (picked.min() < -length or picked.max() >= length):
        raise IndexError(f"row {int(picked.min())}..{int(picked.max())} of a batch of {length}")
    return picked % max(length, 1)


def permutation(order: Index, num_rows: int) -> np.ndarray[Any, Any]:
    """An order of rows as an array.

    Raises:
        ValueError: it leaves rows out, or names some twice.
    """
    rows = np.asarray(order)
    if sorted(rows.tolist()) != list(range(num_rows)):
        raise ValueError(f"an order of {num_rows} rows must name each of them once")
    return rows


class DataProto:
    """Rows of named columns. Tensors have the row as first dimension; object columns are object arrays.

    Operations return new batches and leave their input alone; slices share memory with it, everything
    else copies. `meta_info` is copied shallowly, so no two batches share the dict itself.

    Raises:
        ValueError: columns of different lengths.
    """

    def __init__(
        self,
        batch: Mapping[str, torch.Tensor] | None = None,
        non_tensor_batch: Mapping[str, np.ndarray[Any, Any] | Sequence[Any]] | None = None,
        meta_info: Mapping[str, Any] | None = None,
    ) -> None:
        self.batch: dict[str, torch.Tensor] = dict(batch or {})
        self.non_tensor_batch = {name: _objects(column) for name, column in (non_tensor_batch or {}).items()}
        self.meta_info: dict[str, Any] = dict(meta_info or {})
        lengths = {name: len(column) for name, column in self.batch.items()}
        lengths |= {name: len(column) for name, column in self.non_tensor_batch.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"columns of one batch must have equal lengths, got: {shown}")
        clash = self.batch.keys() & self.non_tensor_batch.keys()
        if clash:
            raise ValueError(f"columns given both as tensors and as objects: {', '.join(sorted(clash))}")

    @property
    def columns(self) -> list[str]:
        """Names of all columns, tensors first."""
        return [*self.batch, *self.non_tensor_batch]

    def __len__(self) -> int:
        for name in self.columns:
            return len(self[name])
        return 0

    def __contains__(self, name: str) -> bool:
        return name in self.batch or name in self.non_tensor_batch

    def __getitem__(self, name: str) -> Any:
        if name in self.batch:
            return self.batch[name]
        if name in self.non_tensor_batch:
            return self.non_tensor_batch[name]
        raise KeyError(f"no column named '{name}'; the batch has: {', '.join(self.columns) or 'none'}")

    def __repr__(self) -> str:
        tensors = ", ".join(f"{name}{list(t.shape)}" for name, t in self.batch.items())
        return f"DataProto({len(self)} rows; {tensors}; {', '.join(self.non_tensor_batch)})"

    def _map(self, pick: Callable[[Any], Any]) -> DataProto:
        return DataProto(
            {name: pick(column) for name, column in self.batch.items()},
            {name: pick(column) for name, column in self.non_tensor_batch.items()},
            self.meta_info,
        )

    def index(self, rows: Index) -> DataProto:
        """Rows by a slice, integer indices (negative ones count from the end) or a boolean mask."""
        if isinstance(rows, slice):
            return self._map(lambda column: column[rows])
        picked = row_numbers(rows, len(self))
        as_tensor = torch.from_numpy(picked)
        return self._map(lambda column: column[as_tensor] if isinstance(column, torch.Tensor) else column[picked])

    def slice(self, start: int | None = None, stop: int | None = None, step: int | None = None) -> DataProto:
        """Rows start:stop:step, sharing memory with this batch."""
        return self.index(slice(start, stop, step))

    def reorder(self, order: Index) -> DataProto:
        """All rows in another order.

        Raises:
            ValueError: `order` is not a permutation.
        """
        return self.index(permutation(order, len(self)))

    def select(self, names: Sequence[str]) -> DataProto:
        """Some of the columns."""
        for name in names:
            self[name]
        return DataProto(
            {name: column for name, column in self.batch.items() if name in names},
            {name: column for name, column in self.non_tensor_batch.items() if name in names},
            self.meta_info,
        )

    def union(self, other: DataProto) -> DataProto:
        """The columns of both. Where both have a column, it must be equal.

        Raises:
            ValueError: different numbers of rows, or a shared column that differs.
        """
        if self.columns and other.columns and len(self) != len(other):
            raise ValueError(f"union of {len(self)} and {len(other)} rows")
        for name in set(self.columns) & set(other.columns):
            if not _equal(self[name], other[name]):
                raise ValueError(f"column '{name}' differs between the two batches")
        return DataProto(
            self.batch | other.batch,
            self.non_tensor_batch | other.non_tensor_batch,
            self.meta_info | other.meta_info,
        )

    def with_meta_info(self, **facts: Any) -> DataProto:
        """The same columns with further facts about the whole."""
        return DataProto(self.batch, self.non_tensor_batch, {**self.meta_info, **facts})

    def with_columns(self, **columns: torch.Tensor | np.ndarray[Any, Any] | Sequence[Any]) -> DataProto:
        """This batch with columns added or replaced."""
        tensors = {name: column for name, column in columns.items() if isinstance(column, torch.Tensor)}
        objects = {name: column for name, column in columns.items() if not isinstance(column, torch.Tensor)}
        kept = {name: column for name, column in self.batch.items() if name not in objects}
        kept_objects = {name: column for name, column in self.non_tensor_batch.items() if name not in tensors}
        return DataProto(kept | tensors, kept_objects | objects, self.meta_info)

    def repeat(self, times: int, *, interleave: bool = True) -> DataProto:
        """Each row `times` times: next to each other, or as whole copies one after another."""
        order = np.arange(len(self))
        return self.index(np.repeat(order, times) if interleave else np.tile(order, times))

    def chunk(self, num_chunks: int) -> list[DataProto]:
        """Consecutive parts of near-equal size, the larger ones first; parts are empty where rows run out."""
        return [self.index(slice(int(part[0]), int(part[-1]) + 1)) if len(part) else self.index(slice(0, 0))
                for part in np.array_split(np.arange(len(self)), num_chunks)]  # fmt: skip

    @staticmethod
    def concat(parts: Sequence[DataProto]) -> DataProto:
        """Rows of all parts, in order; all must have the same columns. `meta_info` is the first part's.

        Raises:
            ValueError: no parts, or parts with different columns.
        """
        if not parts:
            raise ValueError("nothing to concatenate")
        first = parts[0]
        for part in parts[1:]:
            if set(part.columns) != set(first.columns):
                differing = ", ".join(sorted(set(part.columns) ^ set(first.columns)))
                raise ValueError(f"parts with different columns: {differing}")
        return DataProto(
            {name: torch.cat([part.batch[name] for part in parts]) for name in first.batch},
            {name: np.concatenate([part.non_tensor_batch[name] for part in parts]) for name in first.non_tensor_batch},
            first.meta_info,
        )

    def group_by(self, name: str) -> dict[Any, DataProto]:
        """Rows by the value of an object column, groups in order of first appearance."""
        groups: dict[Any, list[int]] = {}
        for row, value in enumerate(self[name]):
            groups.setdefault(value.item() if isinstance(value, torch.Tensor) else value, []).append(row)
        return {value: self.index(rows) for value, rows in groups.items()}

    def to(self, device: torch.device | str) -> DataProto:
        """Tensors moved to a device."""
        return DataProto(
            {name: column.to(device) for name, column in self.batch.items()}, self.non_tensor_batch, self.meta_info
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as dicts, for printing and for rewards."""
        for row in range(len(self)):
            yield {name: self[name][row] for name in self.columns}

    def __reduce__(self) -> tuple[Any, ...]:
        # Tensors travel as numpy arrays: pickle protocol 5 moves those out of band, while a pickled torch
        # tensor is copied several times.
        packed = {name: _to_numpy(column) for name, column in self.batch.items()}
        return _rebuild, (packed, self.non_tensor_batch, self.meta_info)


def _objects(column: np.ndarray[Any, Any] | Sequence[Any]) -> np.ndarray[Any, Any]:
    if isinstance(column, np.ndarray) and column.dtype == object and column.ndim == 1:
        return column
    values = list(column)
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return False
    return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray | torch.Tensor):
        return type(left) is type(right) and left.shape == right.shape and bool(np.all(np.asarray(left == right)))
    return bool(left == right)


def _to_numpy(tensor: torch.Tensor) -> tuple[np.ndarray[Any, Any], torch.dtype, torch.Size]:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    raw = plain.view(torch.uint8).numpy() if plain.numel() else np.empty(0, dtype=np.uint8)
    return raw, tensor.dtype, tensor.shape


def _rebuild(
    packed: Mapping[str, tuple[np.ndarray[Any, Any], torch.dtype, torch.Size]],
    non_tensor_batch: Mapping[str, np.ndarray[Any, Any]],
    meta_info: Mapping[str, Any],
) -> DataProto:
    return DataProto({name: _to_tensor(*parts) for name, parts in packed.items()}, non_tensor_batch, meta_info)


def _to_tensor(raw: np.ndarray[Any, Any], dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    if raw.size == 0:
        return torch.empty(shape, dtype=dtype)
    # The copy makes the batch private and writable: out-of-band arrays may be views of shared memory.
    return torch.from_numpy(raw.copy()).view(dtype).reshape(shape)
