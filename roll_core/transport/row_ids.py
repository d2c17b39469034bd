"""Ids of rows as "chunk.row": which rows of which chunk a list of them asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Places:
    """Rows of a chunk that are asked for, and where in the result they go. Those that follow each other are a slice,
    as they are one piece of memory."""

    rows: slice | Numbers
    positions: slice | Numbers

    def row_bytes(self) -> bytes:
        """The rows' numbers, int64."""
        rows = self.rows
        return (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows).astype(np.int64).tobytes()


def row_ids_of(chunk: str, rows: Iterable[int]) -> tuple[str, ...]:
    """Ids of a chunk's rows."""
    return tuple([f"{chunk}.{row}" for row in rows])


def locate(row_ids: Sequence[str]) -> dict[str, Places]:
    """For each chunk, what is asked of it; at least one row is."""
    return _one_run(row_ids) or _many(row_ids)


def _one_run(row_ids: Sequence[str]) -> dict[str, Places] | None:
    # What is most often asked for is a put as it was, or a part of it: to write its ids again is three times as fast
    # as to read them.
    chunk, _dot, row = row_ids[0].rpartition(".")
    first, end = int(row), int(row) + len(row_ids)
    if row_ids[-1] != f"{chunk}.{end - 1}" or tuple(row_ids) != row_ids_of(chunk, range(first, end)):
        return None
    return {chunk: Places(slice(first, end), slice(0, len(row_ids)))}


def _many(row_ids: Sequence[str]) -> dict[str, Places]:
    rows: dict[str, list[int]] = {}
    positions: dict[str, list[int]] = {}
    for position, row_id in enumerate(row_ids):
        chunk, _dot, row = row_id.rpartition(".")
        if chunk not in rows:
            rows[chunk], positions[chunk] = [], []
        rows[chunk].append(int(row))
        positions[chunk].append(position)
    return {chunk: Places(_narrowed(rows[chunk]), _narrowed(positions[chunk])) for chunk in rows}


def _narrowed(listed: Sequence[int]) -> slice | Numbers:
    numbers = np.array(listed, np.int64)
    first = listed[0]
    if len(listed) == 1 or (np.diff(numbers) == 1).all():
        return slice(first, first + len(listed))
    return numbers
