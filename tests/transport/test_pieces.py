"""Buffers in pieces, and whole again."""

import ctypes
import weakref

import numpy as np
import pytest

from roll_core.transport.pieces import PIECE_BYTES, WHOLE_BYTES, cut, joined


@pytest.mark.parametrize(
    ("num_bytes", "num_pieces"),
    [
        (0, 1),
        (PIECE_BYTES, 1),
        (PIECE_BYTES + 1, 2),
        (3 * PIECE_BYTES, 3),
        (WHOLE_BYTES - 1, WHOLE_BYTES // PIECE_BYTES),
        (WHOLE_BYTES, 1),
    ],
)
def test_a_buffer_is_cut_where_that_is_faster_and_whole_again(num_bytes: int, num_pieces: int) -> None:
    buffer = np.resize(np.arange(251, dtype=np.uint8), num_bytes)
    pieces = cut(buffer)
    assert len(pieces) == num_pieces
    assert np.array_equal(joined(pieces), buffer)


def test_pieces_that_lie_one_after_another_are_not_copied() -> None:
    buffer = np.arange(64, dtype=np.uint8)
    whole = joined([buffer[:20].data, buffer[20:60].data, buffer[60:].data])
    assert np.shares_memory(whole, buffer) and np.array_equal(whole, buffer)
    assert not whole.flags.writeable


def test_a_whole_buffer_keeps_all_its_pieces() -> None:
    memory = bytearray(64)
    pieces = [(ctypes.c_uint8 * 20).from_buffer(memory), (ctypes.c_uint8 * 44).from_buffer(memory, 20)]
    kept = [weakref.ref(piece) for piece in pieces]
    whole = joined(pieces)
    del pieces
    assert all(piece() is not None for piece in kept) and len(whole) == 64
    del whole
    assert all(piece() is None for piece in kept)


def test_pieces_that_lie_apart_are_copied() -> None:
    buffer = np.arange(64, dtype=np.uint8)
    parts = [buffer[:20], buffer[24:60], buffer[60:]]
    whole = joined([part.data for part in parts])
    assert np.array_equal(whole, np.concatenate(parts))
    swapped = joined([parts[0].data, parts[2].data, parts[1].data])
    assert np.array_equal(swapped, np.concatenate([parts[0], parts[2], parts[1]]))
