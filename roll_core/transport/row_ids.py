"""Ids of rows as "chunk.row": which rows of which chunk a list of them asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def locate(row_ids: Sequence[str]) -> dict[str, tuple[Numbers, Numbers]]:
    """For each chunk, which of its rows are asked for, and where in the result they go."""
    rows: dict[str, list[int]] = {}
    positions: dict[str, list[int]] = {}
    for position, row_id in enumerate(row_ids):
        chunk, _dot, row = row_id.rpartition(".")
        if chunk not in rows:
            rows[chunk], positions[chunk] = [], []
        rows[chunk].append(int(row))
        positions[chunk].append(position)
    return {chunk: (np.array(rows[chunk], np.int64), np.array(positions[chunk], np.int64)) for chunk in rows}


def narrowed(numbers: Numbers) -> slice | Numbers:
    """The same numbers as a slice, where they follow each other: those rows are one piece of memory."""
    first = int(numbers[0])
    if len(numbers) == 1 or (np.diff(numbers) == 1).all():
        return slice(first, first + len(numbers))
    return numbers
