"""The local transport moves rows and changes nothing."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from roll_core.transport import RowHandle, RowsGone, Transport, TransportStats
from roll_core.transport.local import LocalTransport

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.complex64,
]


@pytest.fixture
def transport() -> LocalTransport:
    return LocalTransport()


def picked(handle: RowHandle, rows: list[int]) -> RowHandle:
    return replace(handle, row_ids=tuple(handle.row_ids[row] for row in rows))


def objects(*values: object) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def test_rows_come_back_in_the_order_asked(transport: Transport) -> None:
    handle = transport.put({"x": torch.arange(5), "name": objects("a", "b", "c", "d", "e")}, 5)
    columns = transport.get(picked(handle, [3, 0, 4]))
    assert columns["x"].tolist() == [3, 0, 4]
    assert columns["name"].tolist() == ["d", "a", "e"]


def test_a_row_asked_twice_comes_twice_and_the_two_are_independent(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(2, 3), "items": objects([1], [2])}, 2)
    columns = transport.get(picked(handle, [1, 1, 0]))
    assert columns["x"].shape == (3, 3)
    columns["x"][0] = 7
    columns["items"][0].append(8)
    assert columns["x"][1].tolist() == [0, 0, 0]
    assert columns["items"].tolist() == [[2, 8], [2], [1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(transport: Transport, dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2, (4, 2, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    column = bits.bool() if dtype == torch.bool else bits.view(dtype)
    got = transport.get(transport.put({"x": column}, 4))["x"]
    assert got.dtype == dtype and got.shape == column.shape
    assert torch.equal(got.view(torch.uint8), column.view(torch.uint8))


@pytest.mark.parametrize("column", [np.arange(6, dtype=np.int16).reshape(3, 2), np.array(["a", "bcd", ""])])
def test_numpy_columns_stay_numpy_columns_of_their_dtype(transport: Transport, column: np.ndarray) -> None:
    got = transport.get(transport.put({"x": column}, 3))["x"]
    assert isinstance(got, np.ndarray) and got.dtype == column.dtype
    assert got.tolist() == column.tolist()


def test_objects_keep_their_types_and_ragged_tensors_their_lengths(transport: Transport) -> None:
    ragged = objects(torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.bfloat16), torch.tensor([4]))
    mixed = objects({"a": (1, {2}), "big": 2**80}, None, "lone \ud800 surrogate")
    got = transport.get(transport.put({"ids": ragged, "info": mixed}, 3))
    assert [cell.tolist() for cell in got["ids"]] == [[1, 2, 3], [], [4]]
    assert got["ids"][1].dtype == torch.bfloat16
    assert got["info"].tolist() == mixed.tolist()


def test_rows_of_equal_lists_stay_objects(transport: Transport) -> None:
    got = transport.get(transport.put({"x": objects([1, 2], [3, 4])}, 2))["x"]
    assert got.shape == (2,) and got[1] == [3, 4]


def test_no_rows_still_have_their_type_and_shape(transport: Transport) -> None:
    columns = {"x": torch.zeros(3, 5, dtype=torch.bfloat16), "y": np.zeros((3, 2), np.int16), "z": objects(1, 2, 3)}
    got = transport.get(picked(transport.put(columns, 3), []))
    assert got["x"].shape == (0, 5) and got["x"].dtype == torch.bfloat16
    assert got["y"].shape == (0, 2) and got["y"].dtype == np.int16
    assert got["z"].shape == (0,) and got["z"].dtype == object


def test_a_put_of_no_rows_is_a_handle_of_no_rows(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(0, 4)}, 0)
    assert len(handle) == 0
    assert transport.get(handle)["x"].shape == (0, 4)


def test_only_the_fields_asked_for_come(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(2), "y": torch.ones(2), "z": torch.ones(2)}, 2)
    assert list(transport.get(handle, ["z", "x"])) == ["z", "x"]
    assert transport.get(handle, []) == {}


def test_an_unknown_field_names_the_fields_there_are(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(2), "y": torch.zeros(2)}, 2)
    with pytest.raises(KeyError, match="no field named 'z'; the rows have: x, y"):
        transport.get(handle, ["x", "z"])


def test_cleared_rows_are_gone_through_every_handle_and_the_others_stay(transport: Transport) -> None:
    handle = transport.put({"x": torch.arange(4)}, 4)
    transport.clear(picked(handle, [1, 1, 2]))
    with pytest.raises(RowsGone, match=r"2 of 4 rows are not here, the first is \w+\.1\.1"):
        transport.get(handle)
    assert transport.get(picked(handle, [0, 3]))["x"].tolist() == [0, 3]


def test_clearing_twice_is_no_error_and_later_rows_are_not_mixed_up(transport: Transport) -> None:
    handle = transport.put({"x": torch.arange(3)}, 3)
    transport.clear(handle)
    transport.clear(handle)
    later = [transport.put({"x": torch.tensor([value])}, 1) for value in range(8)]
    assert [transport.get(one)["x"].item() for one in later] == list(range(8))
    with pytest.raises(RowsGone):
        transport.get(handle)


def test_a_handle_of_another_transport_finds_nothing(transport: Transport) -> None:
    LocalTransport().put({"x": torch.arange(3)}, 3)
    handle = LocalTransport().put({"x": torch.arange(3)}, 3)
    transport.put({"x": torch.arange(3)}, 3)
    with pytest.raises(RowsGone, match="put into another transport"):
        transport.get(handle)


def test_what_was_put_is_a_snapshot(transport: Transport) -> None:
    tensor, array, nested = torch.zeros(2), np.zeros(2), objects([1], [2])
    handle = transport.put({"t": tensor, "a": array, "o": nested}, 2)
    tensor += 1
    array += 1
    nested[0].append(9)
    got = transport.get(handle)
    assert got["t"].tolist() == [0, 0] and got["a"].tolist() == [0, 0] and got["o"].tolist() == [[1], [2]]


def test_readers_get_private_copies(transport: Transport) -> None:
    handle = transport.put({"t": torch.zeros(2), "a": np.zeros(2), "o": objects([1], [2])}, 2)
    first = transport.get(handle)
    first["t"] += 1
    first["a"] += 1
    first["o"][0].append(9)
    again = transport.get(handle)
    assert again["t"].tolist() == [0, 0] and again["a"].tolist() == [0, 0] and again["o"].tolist() == [[1], [2]]


def test_stats_count_what_is_held_and_return_to_nothing(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(4, 10, dtype=torch.bfloat16), "y": np.zeros(4, np.int64)}, 4)
    assert transport.stats() == TransportStats(rows=4, num_bytes=4 * 10 * 2 + 4 * 8)
    transport.clear(picked(handle, [0]))
    assert transport.stats() == TransportStats(rows=3, num_bytes=3 * 28)
    transport.clear(handle)
    assert transport.stats() == TransportStats(0, 0)


def test_a_view_costs_its_own_bytes_only(transport: Transport) -> None:
    whole = torch.zeros(1_000_000)
    transport.put({"x": objects(whole[:2])}, 1)
    assert transport.stats().num_bytes < 2000


def test_close_frees_everything(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(4)}, 4)
    transport.close()
    assert transport.stats() == TransportStats(0, 0)
    with pytest.raises(RowsGone):
        transport.get(handle)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (torch.zeros(3), "column 'bad' has 3 rows, 2 were announced"),
        (torch.tensor(1.0), "column 'bad' has no rows, 2 were announced"),
        (np.empty((2, 2), dtype=object), "object column 'bad' has 2 dimensions; it must have one"),
        (torch.eye(2).to_sparse(), "column 'bad' is not a dense tensor"),
        (torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged), "is not a dense tensor"),
    ],
)
def test_a_bad_column_is_refused_and_nothing_is_stored(transport: Transport, column: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transport.put({"good": torch.zeros(2), "bad": column}, 2)  # type: ignore[dict-item]
    assert transport.stats() == TransportStats(0, 0)


def test_an_object_that_cannot_be_pickled_stores_nothing(transport: Transport) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        transport.put({"x": torch.zeros(1), "f": objects(lambda: 0)}, 1)
    assert transport.stats() == TransportStats(0, 0)


def test_a_handle_is_small_and_survives_pickling(transport: Transport) -> None:
    handle = transport.put({"x": torch.zeros(256, 100), "y": objects(*range(256))}, 256)
    packed = pickle.dumps(handle)
    assert len(packed) < 256 * 32
    assert transport.get(pickle.loads(packed))["x"].shape == (256, 100)


def test_gradients_do_not_travel(transport: Transport) -> None:
    got = transport.get(transport.put({"x": torch.zeros(2, requires_grad=True)}, 2))["x"]
    assert not got.requires_grad


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        LocalTransport.Config(ring_size=3)
