"""A batch by reference: which rows and which fields, while the values stay in a transport.

Selecting, cutting, repeating and joining moves no data. What a process needs of it, and no more, it reads with a
`BatchReader`; a `Lease` frees what a step put, also when the step fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np
import torch

from roll_core.data.column_cache import ColumnCache
from roll_core.data.data_proto import DataProto, Index, permutation, row_numbers
from roll_core.errors import RollError
from roll_core.transport import FieldSchema, RowHandle, Transport

RowIds = tuple[str, ...]


@dataclass(frozen=True)
class RowRemoteBatch:
    """Rows of named fields that are elsewhere. Pickled, it is some tens of bytes per row.

    `keys` say which rows these are, so that `union` can tell. `blocks` hold different fields of the same rows, each
    from the puts that brought them.
    """

    keys: RowIds
    blocks: tuple[RowHandle, ...]
    meta_info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> tuple[FieldSchema, ...]:
        """What the fields hold."""
        return tuple(one for block in self.blocks for one in block.schema)

    @property
    def fields(self) -> list[str]:
        """Names of the fields."""
        return [one.name for one in self.schema]

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __repr__(self) -> str:
        return f"RowRemoteBatch({len(self)} rows; {', '.join(self.fields)})"

    def select(self, names: Sequence[str]) -> RowRemoteBatch:
        """Some of the fields.

        Raises:
            KeyError: a field the rows do not have.
        """
        for name in names:
            if name not in self:
                raise KeyError(f"no field named '{name}'; the rows have: {', '.join(self.fields) or 'none'}")
        wanted = set(names)
        return replace(
            self, blocks=tuple(_fields_of(block, wanted) for block in self.blocks if wanted & {*block.fields})
        )

    def index(self, rows: Index) -> RowRemoteBatch:
        """Rows by a slice, integer indices (negative ones count from the end) or a boolean mask."""
        if isinstance(rows, slice):
            return self._map(lambda ids: ids[rows])
        numbers = row_numbers(rows, len(self)).tolist()
        return self._map(lambda ids: tuple(ids[number] for number in numbers))

    def slice(self, start: int | None = None, stop: int | None = None, step: int | None = None) -> RowRemoteBatch:
        """Rows start:stop:step."""
        return self.index(slice(start, stop, step))

    def filter(self, keep: Sequence[bool] | np.ndarray[Any, Any] | torch.Tensor) -> RowRemoteBatch:
        """Rows where the mask says so. The others stay in the transport until a lease frees them."""
        return self.index(np.asarray(keep, dtype=bool))

    def reorder(self, order: Index) -> RowRemoteBatch:
        """All rows in another order.

        Raises:
            ValueError: `order` is not a permutation.
        """
        return self.index(permutation(order, len(self)))

    def repeat(self, times: int, *, interleave: bool = True) -> RowRemoteBatch:
        """Each row `times` times: next to each other, or as whole copies one after another."""
        order = np.arange(len(self))
        return self.index(np.repeat(order, times) if interleave else np.tile(order, times))

    def chunk(self, num_chunks: int) -> list[RowRemoteBatch]:
        """Consecutive parts of near-equal size, the larger ones first; parts are empty where rows run out."""
        return [self.index(part) for part in np.array_split(np.arange(len(self)), num_chunks)]

    def union(self, other: RowRemoteBatch) -> RowRemoteBatch:
        """The fields of both, of the same rows in the same order. A field of both is taken from the other.

        Raises:
            ValueError: other rows, or another order.
        """
        if self.keys != other.keys:
            same = " in another order" if sorted(self.keys) == sorted(other.keys) else ""
            raise ValueError(f"union of {len(self)} rows with {len(other)} that are not the same{same or ' rows'}")
        kept = set(self.fields) - set(other.fields)
        blocks = tuple(_fields_of(block, kept) for block in self.blocks if kept & {*block.fields})
        return RowRemoteBatch(self.keys, (*blocks, *other.blocks), {**self.meta_info, **other.meta_info})

    @staticmethod
    def concat(parts: Sequence[RowRemoteBatch]) -> RowRemoteBatch:
        """Rows of all parts, in order. `meta_info` is the first part's.

        Raises:
            ValueError: no parts, or parts with different fields or fields of different types.
        """
        if not parts:
            raise ValueError("nothing to concatenate")
        first = parts[0]
        wanted = {one.name: one for one in first.schema}
        for part in parts[1:]:
            _check_same(wanted, {one.name: one for one in part.schema})
        # Fields that share a block in every part share one in the result.
        together: dict[tuple[int, ...], list[str]] = {}
        places = [{name: n for n, block in enumerate(part.blocks) for name in block.fields} for part in parts]
        for name in wanted:
            together.setdefault(tuple(place[name] for place in places), []).append(name)
        keys = tuple(key for part in parts for key in part.keys)
        blocks = []
        for numbers, names in together.items():
            taken = [part.blocks[number].row_ids for part, number in zip(parts, numbers)]
            same = all(ids is part.keys for ids, part in zip(taken, parts))
            row_ids = keys if same else tuple(row_id for ids in taken for row_id in ids)
            blocks.append(RowHandle(row_ids, tuple(wanted[name] for name in names)))
        return RowRemoteBatch(keys, tuple(blocks), first.meta_info)

    def _map(self, pick: Any) -> RowRemoteBatch:
        # Equal tuples stay one object, which is pickled once.
        picked: dict[int, RowIds] = {}
        for ids in (self.keys, *(block.row_ids for block in self.blocks)):
            picked.setdefault(id(ids), pick(ids))
        blocks = tuple(RowHandle(picked[id(block.row_ids)], block.schema) for block in self.blocks)
        return RowRemoteBatch(picked[id(self.keys)], blocks, self.meta_info)


def put_batch(
    transport: Transport, batch: DataProto, *, partition: str = "", like: RowRemoteBatch | None = None
) -> RowRemoteBatch:
    """Put a batch's columns. `like` makes them further columns of rows that are there, for `union`.

    Raises:
        ValueError: `like` has another number of rows.
    """
    if like is not None and len(like) != len(batch):
        raise ValueError(f"{len(batch)} rows cannot be further columns of {len(like)}")
    handle = transport.put({**batch.batch, **batch.non_tensor_batch}, len(batch), partition=partition)
    return RowRemoteBatch(like.keys if like is not None else handle.row_ids, (handle,), dict(batch.meta_info))


class BatchReader:
    """Reads batches by reference in one process, and keeps tensors of rows that it read, up to a bound in bytes.

    Rows never change, so what is kept is right; it can be read here even after it was cleared elsewhere.
    """

    def __init__(self, transport: Transport, cache_bytes: int = 0) -> None:
        self.transport = transport
        self.cache = ColumnCache(cache_bytes)
        self._ahead = ThreadPoolExecutor(1, "prefetch")

    def materialize(self, batch: RowRemoteBatch, fields: Sequence[str] | None = None) -> DataProto:
        """The batch's fields, or some of them, in this process; private and writable.

        Raises:
            KeyError, RowsGone, DataLost, TransportTimeout: as `Transport.get`.
        """
        asked = batch if fields is None else batch.select(fields)
        columns: dict[str, Any] = {}
        for block in asked.blocks:
            columns |= self._columns(block)
        tensors = {name: columns[name] for name in asked.fields if isinstance(columns[name], torch.Tensor)}
        objects = {name: columns[name] for name in asked.fields if name not in tensors}
        return DataProto(tensors, objects, batch.meta_info)

    def prefetch(self, batch: RowRemoteBatch, fields: Sequence[str] | None = None) -> Future[DataProto]:
        """Begin to read, one batch after another, while this thread goes on; `result()` is the batch."""
        return self._ahead.submit(self.materialize, batch, fields)

    def close(self) -> None:
        """Forget what is kept, and wait for what is being read."""
        self._ahead.shutdown()
        self.cache.clear()

    def _columns(self, block: RowHandle) -> dict[str, Any]:
        kept = {one.name: self.cache.find(one, block.row_ids) for one in block.schema}
        found: dict[str, Any] = {name: column for name, column in kept.items() if column is not None}
        missing = [name for name in block.fields if name not in found]
        fetched = self.transport.get(block, missing) if missing else {}
        for name, column in fetched.items():
            if isinstance(column, torch.Tensor):
                self.cache.keep(name, block.row_ids, column)
        found |= fetched
        return found


class Lease:
    """What one step holds in a transport: freed when the step ends, however it ends.

    Used as a context. `name` is the partition under which everybody puts what belongs to the step, so that also rows
    whose reference never arrived are freed.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self.transport, self.name = transport, name
        self._known: list[RowRemoteBatch] = []
        self._at_end: list[Callable[[], None]] = []

    def put(self, batch: DataProto, *, like: RowRemoteBatch | None = None) -> RowRemoteBatch:
        """Put a batch that is freed with the lease."""
        return self.track(put_batch(self.transport, batch, partition=self.name, like=like))

    def track(self, batch: RowRemoteBatch) -> RowRemoteBatch:
        """Know of rows that another process put under this lease, so that `keep` can free them."""
        self._known.append(batch)
        return batch

    def keep(self, batches: Iterable[RowRemoteBatch]) -> int:
        """Free all known rows that none of the batches refers to: those that were filtered or dropped."""
        wanted = list(batches)
        kept = {row_id for batch in wanted for block in batch.blocks for row_id in block.row_ids}
        num_freed = 0
        for block in (block for batch in self._known for block in batch.blocks):
            free = tuple(row_id for row_id in dict.fromkeys(block.row_ids) if row_id not in kept)
            if free:
                self.transport.clear(RowHandle(free, block.schema))
                num_freed += len(free)
        self._known = wanted
        return num_freed

    def at_end(self, free: Callable[[], None]) -> None:
        """Have something else freed with the lease, which was put under another name."""
        self._at_end.append(free)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        try:
            self.transport.clear_partition(self.name)
            for free in self._at_end:
                free()
        except RollError as failure:
            if error is None:
                raise
            error.add_note(f"rows of '{self.name}' could not be freed: {failure}")


def _fields_of(block: RowHandle, names: set[str]) -> RowHandle:
    return RowHandle(block.row_ids, tuple(one for one in block.schema if one.name in names))


def _check_same(first: Mapping[str, FieldSchema], other: Mapping[str, FieldSchema]) -> None:
    if first.keys() != other.keys():
        raise ValueError(f"parts with different fields: {', '.join(sorted(first.keys() ^ other.keys()))}")
    for name, one in first.items():
        if one != other[name]:
            shown = " and ".join(f"{each.dtype}{list(each.shape)}" for each in (one, other[name]))
            raise ValueError(f"field '{name}' is {shown} in two parts; put rows of different shapes as objects")
