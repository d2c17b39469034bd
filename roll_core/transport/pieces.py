"""Buffers in pieces that Ray copies fast, and whole again where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from roll_core.transport.frozen import Bytes

PIECE_BYTES = 2**20
"""Longer buffers are each copied by threads that Ray starts for them. On two cores that takes half a millisecond more
for each, in which 5 MiB are copied: eight fields of 6 MiB took 9.2 ms in one put, 48 pieces of 1 MiB 5.9."""
WHOLE_BYTES = 32 * 2**20
"""From here on a buffer is left to the threads: where there are cores for them, they copy it faster than one does."""


def cut(buffer: Bytes) -> list[PickleBuffer]:
    """Pieces for Ray to copy from. They share memory with the buffer."""
    if not PIECE_BYTES < len(buffer) < WHOLE_BYTES:
        return [PickleBuffer(buffer.data)]
    memory = buffer.data
    return [PickleBuffer(memory[start : start + PIECE_BYTES]) for start in range(0, len(buffer), PIECE_BYTES)]


def joined(pieces: Sequence[Any]) -> Bytes:
    """The buffer again, of what came back for its pieces.

    Ray lays pieces one after another, so nothing is copied; where it ever should not, they are.
    """
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    if len(arrays) == 1:
        return arrays[0]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    ends = [start + len(array) for start, array in zip(starts, arrays)]
    if starts[1:] != ends[:-1]:
        return np.concatenate(arrays)
    return np.asarray(_OneAfterAnother(arrays, starts[0], ends[-1] - starts[0]))


class _OneAfterAnother:
    """The memory of several arrays, all of which it keeps, as that of one that cannot be written to."""

    def __init__(self, arrays: Sequence[Bytes], start: int, num_bytes: int) -> None:
        self.arrays = arrays
        self.__array_interface__ = {**arrays[0].__array_interface__, "data": (start, True), "shape": (num_bytes,)}
