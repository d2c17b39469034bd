"""Columns as bytes and back: any rows of several pieces, whatever the cells are."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.transport.base import FieldSchema
from roll_core.transport.codec import Piece, decode, encode
from roll_core.transport.frozen import freeze_cells, thaw_cells


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


TEXTS = ["", "plain", "gr\u00fc\u00dfe", "\u4e16\u754c", "\U0001f600", "\ud800"]

COLUMNS: dict[str, Callable[[int], Any]] = {
    "ascii": lambda row: f"row {row} " * row,
    "text of all kinds": lambda row: TEXTS[row % len(TEXTS)] * row,
    "bytes": lambda row: bytes(range(row)),
    "ragged": lambda row: torch.arange(row).bfloat16(),
    "arrays": lambda row: np.arange(row * 2, dtype=np.int16).reshape(row, 2),
    "messages": lambda row: [{"role": "user", "content": f"{row} " * row}] * (row % 3),
    "tensors inside": lambda row: {"pixels": torch.full((row, 3), row), "more": [np.arange(row), None, row]},
    "a few with tensors": lambda row: torch.ones(2) if row % 5 == 0 else row,
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("copy", [True, False])
def test_any_rows_of_two_pieces_come_back(kind: str, copy: bool) -> None:
    values = [COLUMNS[kind](row) for row in range(20)]
    first, second = encode("x", objects(values[:13]), 13), encode("x", objects(values[13:]), 7)
    choice = random.Random(0)
    for count in (0, 1, 9, 30):
        asked = choice.choices(range(20), k=count)
        pieces = []
        for encoded, start, stop in ((first, 0, 13), (second, 13, 20)):
            positions = [place for place, row in enumerate(asked) if start <= row < stop]
            rows = [asked[place] - start for place in positions]
            pieces.append(Piece(encoded.layout, encoded.buffers, np.array(rows, int), np.array(positions, int)))
        got = decode(FieldSchema("x", "object", "object", ()), pieces, count, copy=copy)
        for row, cell in zip(asked, got, strict=True):
            assert_alike(cell, values[row])


def test_all_rows_of_a_slice_come_back() -> None:
    values = [COLUMNS["tensors inside"](row) for row in range(6)]
    encoded = encode("x", objects(values), 6)
    got = decode(encoded.field, [Piece(encoded.layout, encoded.buffers, slice(2, 5), slice(0, 3))], 3)
    for cell, value in zip(got, values[2:5], strict=True):
        assert_alike(cell, value)


def test_cells_are_private_to_whoever_thaws_them() -> None:
    shared = torch.zeros(2)
    frozen = freeze_cells([[shared, shared], [shared]])
    (first, second), (again, _) = thaw_cells(frozen, [0, 1]), thaw_cells(frozen, [0, 1])
    assert first[0] is first[1], "what is one thing inside an object stays one"
    first[0] += 1
    assert second[0].tolist() == again[0].tolist() == [0, 0]


def test_no_cells_are_no_bytes() -> None:
    assert [len(part) for part in freeze_cells([])] == [0, 8, 0, 8, 0]
    assert thaw_cells(freeze_cells([]), []) == []


def assert_alike(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_alike(found[key], value)
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape and (found == expected).all()
    else:
        assert found == expected
