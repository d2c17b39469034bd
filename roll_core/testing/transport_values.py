"""Tests of what a transport does to values: nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from roll_core.testing.transport_case import TransportCase, objects, picked, same_bits, tensor
from roll_core.transport import RowHandle, Transport

if TYPE_CHECKING:
    pass


DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
]

OBJECTS: Mapping[str, Any] = {
    "text": "plain",
    "empty text": "",
    "a lone surrogate": "\ud800",
    "nothing": None,
    "a large integer": 2**80,
    "bytes": b"\x00\xff",
    "a tuple": (1, ("a", 2.5)),
    "a set": frozenset({1, 2}),
    "messages": [{"role": "user", "content": "hi", "scores": [0.1, None]}],
    "a numpy number": np.float32(0.5),
    "a complex number": 1 + 2j,
}
"""Kinds of objects that rows hold, each of which must come back equal and of the same type."""


class TransportValues(TransportCase):
    """Dtypes, shapes, types and raggedness come out as they went in; what cannot travel stores nothing."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_dtype_comes_back_bit_for_bit(
        self, transport: Transport, put: Callable[..., RowHandle], dtype: torch.dtype
    ) -> None:
        bits = torch.randint(0, 2, (4, 3, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        column = bits.bool() if dtype == torch.bool else bits.view(dtype)
        got = tensor(self._get(transport, put({"x": column}, 4)), "x")
        assert got.dtype == dtype, f"a column of {dtype} came back as {got.dtype}"
        assert got.shape == column.shape, f"a column of shape {tuple(column.shape)} came back as {tuple(got.shape)}"
        assert same_bits(got, column), f"values of {dtype} changed on the way"

    @pytest.mark.parametrize("array", [np.arange(6, dtype=np.int16).reshape(3, 2), np.array(["a", "bcd", ""])])
    def test_arrays_keep_their_dtype(
        self, transport: Transport, put: Callable[..., RowHandle], array: np.ndarray[Any, Any]
    ) -> None:
        got = self._get(transport, put({"x": array}, 3))["x"]
        assert isinstance(got, np.ndarray), f"an array came back as a {type(got).__name__}"
        assert got.dtype == array.dtype, f"an array of {array.dtype} came back as {got.dtype}"
        assert got.tolist() == array.tolist(), "values of an array changed on the way"

    @pytest.mark.parametrize("kind", OBJECTS)
    def test_objects_keep_value_and_type(self, transport: Transport, put: Callable[..., RowHandle], kind: str) -> None:
        value = OBJECTS[kind]
        got = self._get(transport, put({"x": objects(value, [value], None)}, 3))["x"]
        assert type(got[0]) is type(value), f"{kind}: a {type(value).__name__} came back as a {type(got[0]).__name__}"
        assert got.tolist() == [value, [value], None], f"{kind} came back as another value"

    def test_ragged_rows_keep_lengths_and_dtypes(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        rows = [torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.bfloat16), torch.ones(2, 2), torch.tensor(4)]
        got = self._get(transport, put({"x": objects(*rows)}, 4))["x"]
        for row, (there, here) in enumerate(zip(rows, got)):
            alike = isinstance(here, torch.Tensor) and here.dtype == there.dtype and torch.equal(here, there)
            assert alike, f"ragged row {row}, {there!r}, came back as {here!r}"

    def test_views_and_strides_do_not_matter(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        base = torch.arange(24.0).reshape(4, 6)
        columns = {"turned": base.T, "every_second": torch.arange(12)[::2], "spread": torch.ones(1, 3).expand(6, 3)}
        got = self._get(transport, put(columns, 6))
        for name, column in columns.items():
            assert torch.equal(tensor(got, name), column), f"the view '{name}' came back with other values"

    def test_gradients_do_not_travel(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        got = tensor(self._get(transport, put({"x": torch.zeros(2, requires_grad=True)}, 2)), "x")
        assert not got.requires_grad, "a column came back attached to a graph"

    def test_no_rows_keep_type_and_shape(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        columns = {
            "t": torch.zeros(3, 5, dtype=torch.bfloat16),
            "a": np.zeros((3, 2), np.int16),
            "o": objects(1, 2, 3),
        }
        for handle in (picked(put(columns, 3), []), put({name: c[:0] for name, c in columns.items()}, 0)):
            got = self._get(transport, handle)
            shapes = {name: (tuple(column.shape), str(column.dtype)) for name, column in got.items()}
            assert shapes == {"t": ((0, 5), "torch.bfloat16"), "a": ((0, 2), "int16"), "o": ((0,), "object")}

    def test_a_large_batch_comes_back_whole(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        columns = {f"field_{i}": torch.arange(64 * 4096).reshape(64, 4096) + i for i in range(8)}
        got = self._get(transport, put(columns, 64))
        wrong = [name for name, column in columns.items() if not torch.equal(tensor(got, name), column)]
        assert wrong == [], f"of a batch of 16 MiB these fields changed: {wrong}"

    @pytest.mark.parametrize(
        "bad",
        [
            torch.zeros(3),
            torch.tensor(1.0),
            np.empty((2, 2), dtype=object),
            torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged),
        ],
        ids=["three rows", "no rows", "objects in two dimensions", "ragged, not as objects"],
    )
    def test_a_bad_column_stores_nothing(self, transport: Transport, bad: Any) -> None:
        before = transport.stats()
        with pytest.raises(ValueError, match="bad"):
            transport.put({"good": torch.zeros(2), "bad": bad}, 2)
        assert transport.stats() == before, "a put that was refused left something behind"

    def test_an_object_that_cannot_travel_stores_nothing(self, transport: Transport) -> None:
        before = transport.stats()
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError, ValueError)):
            transport.put({"x": torch.zeros(1), "f": objects(lambda: 0)}, 1)
        assert transport.stats() == before, "a put that was refused left something behind"
