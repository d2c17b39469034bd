"""Tests of when rows of a transport are gone: once they are cleared, and not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from roll_core.testing.transport_case import Shelf, TransportCase, objects, picked
from roll_core.transport import RowHandle, RowsGone, Transport

if TYPE_CHECKING:
    pass


class TransportLifetimes(TransportCase):
    """Cleared rows are gone for everyone, the others stay, and nothing leaks."""

    def test_cleared_rows_are_gone_and_the_others_stay(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        handle = put({"x": torch.arange(4)}, 4)
        transport.clear(picked(handle, [1, 1, 2]))
        for rows in ([0, 1, 2, 3], [2], [0, 1]):
            with pytest.raises(RowsGone):
                pytest.fail(
                    f"rows {rows}, of which some are cleared, gave {self._get(transport, picked(handle, rows))}"
                )
        assert self._get(transport, picked(handle, [3, 0]))["x"].tolist() == [3, 0], "rows that stayed have changed"

    def test_clearing_again_harms_nobody(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.arange(3)}, 3)
        transport.clear(handle)
        transport.clear(replace(handle, row_ids=handle.row_ids * 2))
        later = [put({"x": torch.tensor([value])}, 1) for value in range(8)]
        got = [self._get(transport, one)["x"].item() for one in later]
        assert got == list(range(8)), f"after rows were cleared twice, eight new rows read back as {got}"
        with pytest.raises(RowsGone):
            self._get(transport, handle)

    def test_rows_that_were_never_put_are_gone(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.arange(2)}, 2)
        strange = replace(handle, row_ids=(handle.row_ids[0], f"{handle.row_ids[1]}9"))
        with pytest.raises(RowsGone):
            pytest.fail(f"a row that was never put gave {self._get(transport, strange)}")

    def test_nothing_leaks(self, transport: Transport) -> None:
        before = transport.stats()
        for _ in range(5):
            handle = transport.put({"x": torch.zeros(64, 1000), "o": objects(*range(64))}, 64)
            held = transport.stats().rows - before.rows
            assert held == 64, f"64 rows were put, stats counts {held}"
            assert transport.stats().num_bytes - before.num_bytes >= 64 * 4000, "stats counts too few bytes"
            transport.clear(picked(handle, list(range(0, 64, 2))))
            held = transport.stats().rows - before.rows
            assert held == 32, f"32 of 64 rows were cleared, stats counts {held}"
            transport.clear(handle)
            after = transport.stats()
            assert after == before, f"everything was cleared, {after.rows - before.rows} rows are left: {after}"

    def test_a_partition_is_cleared_as_a_whole(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        mine = [put({"x": torch.arange(3)}, 3, partition="step-1") for _ in range(2)]
        other, none = put({"x": torch.arange(3)}, 3, partition="step-2"), put({"x": torch.arange(3)}, 3)
        transport.clear_partition("step-1")
        for handle in mine:
            with pytest.raises(RowsGone):
                pytest.fail(f"a row of a cleared partition gave {self._get(transport, handle)}")
        assert [self._get(transport, one)["x"].tolist() for one in (other, none)] == [[0, 1, 2]] * 2
        transport.clear_partition("step-1")
        transport.clear_partition("never used")

    def test_close_frees_everything(self, shelf: Shelf) -> None:
        transport = shelf.transport()
        handle = transport.put({"x": torch.zeros(4)}, 4)
        shelf.close()
        with pytest.raises(Exception):  # noqa: B017 - what a closed transport raises is its own choice
            pytest.fail(f"a closed transport still gave {transport.get(handle)}")
