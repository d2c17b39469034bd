"""What is where, and what is still wanted: the one process that knows which rows of the `ray` transport live.

Ray frees an object when nobody refers to it, and not before. So the references are kept here alone: when the last
row of a chunk is cleared, they are dropped, whatever handles still exist. No payload passes through here, unless
objects are to survive the process that put them. Imports no torch: it starts while others still do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pickle import PickleBuffer
from typing import Any

import numpy as np

from roll_core.transport.base import TransportStats

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Manifest:
    """What one put holds. Its groups of buffers are Ray objects of their own.

    `groups` says which of them each column is in. `columns` are StoredColumns by name, pickled once for all readers:
    this process only passes them on, and Ray pickles dataclasses slowly.
    """

    chunk: str
    partition: str
    num_rows: int
    num_bytes: int
    groups: Mapping[str, int]
    columns: bytes


@dataclass
class _Chunk:
    manifest: Manifest
    groups: list[Any]
    alive: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Found:
    """Columns of a chunk, as its manifest has them, and references to the groups that were asked for."""

    columns: bytes
    groups: Mapping[int, Any]


@dataclass(frozen=True)
class Missing:
    """Rows that are not held: how many, and the first."""

    count: int
    first: str


@dataclass
class Directory:
    """Chunks of rows, which of their rows live, and how many bytes they are. Called by several threads at once."""

    max_bytes: int
    _chunks: dict[str, _Chunk] = field(default_factory=dict)
    _reserved: dict[str, tuple[int, float]] = field(default_factory=dict)
    _num_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def limit(self) -> int:
        """The most bytes that are held at once."""
        return self.max_bytes

    def reserve(self, chunk: str, num_bytes: int, keep_s: float) -> bool:
        """Set room aside for a put; False where there is none. A producer that dies loses it after a while."""
        with self._lock:
            if not self._has_room(num_bytes):
                return False
            self._reserved[chunk] = (num_bytes, time.monotonic() + keep_s)
            return True

    def add(self, manifest: Manifest, groups: Sequence[Any], copied: bool = False) -> bool:
        """Hold a put's rows; False where no room was set aside for it and there is none.

        `copied` makes the objects this process's own.
        """
        held = [_own(group) for group in groups] if copied else list(groups)
        with self._lock:
            if manifest.chunk not in self._reserved and not self._has_room(manifest.num_bytes):
                return False
            self._reserved.pop(manifest.chunk, None)
            self._num_bytes += manifest.num_bytes
            self._chunks[manifest.chunk] = _Chunk(manifest, held, np.ones(manifest.num_rows, bool))
            return True

    def _has_room(self, num_bytes: int) -> bool:
        now = time.monotonic()
        self._reserved = {name: kept for name, kept in self._reserved.items() if kept[1] > now}
        taken = self._num_bytes + sum(kept for kept, _until in self._reserved.values())
        return taken + num_bytes <= self.max_bytes

    def find(self, asked: Mapping[str, bytes], names: Sequence[str]) -> dict[str, Found] | Missing:
        """Where columns of rows are, by chunk; or what is missing, if any is.

        Rows are their numbers as int64, in bytes, which Ray passes on as they are. Arrays it pickles.
        """
        with self._lock:
            missing = [f"{name}.{row}" for name, rows in asked.items() for row in self._missing(name, _numbers(rows))]
            if missing:
                return Missing(len(missing), missing[0])
            return {name: _found(self._chunks[name], names) for name in asked}

    def clear(self, asked: Mapping[str, bytes]) -> None:
        """Forget rows, and the objects of chunks that have none left."""
        with self._lock:
            for name, numbers in asked.items():
                chunk, rows = self._chunks.get(name), _numbers(numbers)
                if chunk is not None:
                    chunk.alive[rows[rows < len(chunk.alive)]] = False
                    if not chunk.alive.any():
                        self._drop(name)

    def clear_partition(self, partition: str) -> None:
        """Forget all rows of a partition."""
        with self._lock:
            for name in [name for name, one in self._chunks.items() if one.manifest.partition == partition]:
                self._drop(name)

    def stats(self) -> TransportStats:
        """Rows that live, and the bytes of chunks with such."""
        with self._lock:
            return TransportStats(sum(int(chunk.alive.sum()) for chunk in self._chunks.values()), self._num_bytes)

    def _missing(self, name: str, rows: Rows) -> list[int]:
        found = self._chunks.get(name)
        if found is not None:
            lives = rows < len(found.alive)
            lives[lives] = found.alive[rows[lives]]
            rows = rows[~lives]
        return sorted(set(rows.tolist()))

    def _drop(self, name: str) -> None:
        self._num_bytes -= self._chunks.pop(name).manifest.num_bytes


def _found(chunk: _Chunk, names: Sequence[str]) -> Found:
    wanted = {chunk.manifest.groups[name] for name in names}
    return Found(chunk.manifest.columns, {group: chunk.groups[group] for group in wanted})


def _numbers(rows: bytes) -> Rows:
    return np.frombuffer(rows, np.int64)


def _own(group: Any) -> Any:
    import ray

    return ray.put([[PickleBuffer(piece) for piece in buffer] for buffer in ray.get(group)])
