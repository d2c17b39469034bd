"""Tests of which rows and fields a transport gives, and to whom they belong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from roll_core.testing.transport_case import TransportCase, objects, picked
from roll_core.transport import RowHandle, Transport

if TYPE_CHECKING:
    pass


class TransportRows(TransportCase):
    """What was asked for comes, in the order asked, and is the reader's own."""

    def test_rows_come_back_in_the_order_asked(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.arange(6), "name": objects(*"abcdef")}, 6)
        got = self._get(transport, picked(handle, [4, 0, 5]))
        assert got["x"].tolist() == [4, 0, 5], f"rows 4, 0, 5 were asked, {got['x'].tolist()} came"
        assert got["name"].tolist() == ["e", "a", "f"], f"objects e, a, f were asked, {got['name'].tolist()} came"

    def test_any_choice_of_rows_is_that_of_a_list(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        first, second = put({"x": torch.arange(20)}, 20), put({"x": torch.arange(20, 32)}, 12)
        whole, choice = replace(first, row_ids=first.row_ids + second.row_ids), random.Random(0)
        for _ in range(12):
            rows = choice.choices(range(32), k=choice.randrange(40))
            got = self._get(transport, picked(whole, rows))["x"].tolist()
            assert len(got) == len(rows), f"{len(rows)} rows of two puts were asked, some twice, and {len(got)} came"
            wrong = [place for place in range(len(rows)) if got[place] != rows[place]]
            assert not wrong, f"of {len(rows)} rows of two puts, {len(wrong)} came in another's place"

    def test_a_row_asked_twice_comes_as_two_copies(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(2, 3), "items": objects([1], [2])}, 2)
        got = self._get(transport, picked(handle, [1, 1, 0]))
        got["x"][0] = 7
        got["items"].tolist()[0].append(8)
        assert got["x"][1].tolist() == [0, 0, 0], "two copies of one row share memory"
        assert got["items"].tolist() == [[2, 8], [2], [1]], "two copies of one object are one object"

    def test_only_the_fields_asked_for_come(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(2), "y": torch.ones(2), "z": torch.ones(2)}, 2)
        got = list(self._get(transport, handle, ["z", "x"]))
        assert got == ["z", "x"], f"fields z, x were asked, {got} came"
        assert self._get(transport, handle, []) == {}

    def test_an_unknown_field_is_an_error(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(2)}, 2)
        with pytest.raises(KeyError, match="no field named 'w'"):
            pytest.fail(
                f"of the fields x and w, which is unknown, came {list(self._get(transport, handle, ['x', 'w']))}"
            )

    def test_a_put_is_a_snapshot(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        tensor, array, nested = torch.zeros(2), np.zeros(2), objects([1], [2])
        handle = put({"t": tensor, "a": array, "o": nested}, 2)
        tensor += 1
        array += 1
        nested[0].append(9)
        got = {name: column.tolist() for name, column in self._get(transport, handle).items()}
        expected = {"t": [0, 0], "a": [0, 0], "o": [[1], [2]]}
        assert got == expected, f"what was changed after the put is seen by readers: {got}"

    def test_readers_do_not_see_each_others_changes(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"t": torch.zeros(2), "a": np.zeros(2), "o": objects([1], [2])}, 2)
        first = self._get(transport, handle)
        first["t"] += 1
        first["a"] += 1
        first["o"].tolist()[0].append(9)
        got = {name: column.tolist() for name, column in self._get(transport, handle).items()}
        assert got == {"t": [0, 0], "a": [0, 0], "o": [[1], [2]]}, f"one reader's writes are seen by another: {got}"

    def test_reading_without_a_copy_gives_the_same_rows(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        handle = put({"x": torch.arange(12.0).reshape(4, 3), "o": objects("a", [1], None, "d")}, 4)
        for rows in ([0, 1, 2, 3], [1, 2], [3, 0, 3]):
            copied = self._get(transport, picked(handle, rows))
            viewed = transport.get(picked(handle, rows), copy=False)
            assert {n: c.tolist() for n, c in viewed.items()} == {n: c.tolist() for n, c in copied.items()}
