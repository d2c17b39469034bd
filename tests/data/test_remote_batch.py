"""References to rows behave as the rows would, move none, and free what nobody wants any more."""

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.data import DataProto
from roll_core.data.remote_batch import BatchReader, Lease, RowRemoteBatch, put_batch
from roll_core.errors import RollError
from roll_core.transport import DataLost, RowHandle, RowsGone, TransportStats
from roll_core.transport.local import LocalTransport


class CountingTransport(LocalTransport):
    """Notes which fields are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[list[str]] = []

    def get(self, handle: RowHandle, fields: Sequence[str] | None = None, *, copy: bool = True) -> dict[str, Any]:
        self.read.append(list(handle.fields if fields is None else fields))
        return super().get(handle, fields, copy=copy)


@pytest.fixture
def transport() -> CountingTransport:
    return CountingTransport()


def batch(rows: int, offset: int = 0) -> DataProto:
    numbers = torch.arange(offset, offset + rows)
    objects = [f"row {number}" for number in numbers.tolist()]
    return DataProto({"x": numbers, "y": numbers[:, None].bfloat16() / 4}, {"name": objects}, {"temperature": 0.5})


def seen(reader: BatchReader, reference: RowRemoteBatch) -> list[int]:
    got = reader.materialize(reference)
    assert got["y"].dtype == torch.bfloat16 and torch.equal(got["y"], got["x"][:, None].bfloat16() / 4)
    assert got["name"].tolist() == [f"row {number}" for number in got["x"].tolist()]
    numbers: list[int] = got["x"].tolist()
    return numbers


@pytest.mark.parametrize(
    "operation",
    [
        lambda b: b.index([3, -1, 0, 3]),
        lambda b: b.index(torch.tensor([True, False, True, False, False])),
        lambda b: b.index([]),
        lambda b: b.slice(1, 4),
        lambda b: b.slice(None, None, -2) if isinstance(b, RowRemoteBatch) else b.index([4, 2, 0]),
        lambda b: b.reorder([4, 3, 1, 0, 2]),
        lambda b: b.repeat(3),
        lambda b: b.repeat(2, interleave=False),
        lambda b: b.chunk(3)[1],
        lambda b: b.chunk(7)[6],
        lambda b: type(b).concat([b.slice(3), b, b.index([1, 1])]),
        lambda b: b.select(["name", "x"]),
        lambda b: b.union(b.select(["y"])),
    ],
)
def test_an_operation_on_a_reference_is_that_on_the_batch(
    transport: CountingTransport, operation: Callable[[Any], Any]
) -> None:
    plain = batch(5)
    reference = operation(put_batch(transport, plain))
    assert transport.read == []
    got, expected = BatchReader(transport).materialize(reference), operation(plain)
    assert sorted(got.columns) == sorted(expected.columns)
    assert [list(row.items()) for row in got.select(expected.columns).rows()] == [
        [(name, row[name]) for name in got.columns] for row in expected.rows()
    ]
    assert got.meta_info == {"temperature": 0.5}


def test_row_order_and_dtype_survive_ten_thousand_random_sequences(transport: CountingTransport) -> None:
    choice, reader = random.Random(0), BatchReader(transport)
    first, second = put_batch(transport, batch(7)), put_batch(transport, batch(5, offset=7))
    both = RowRemoteBatch.concat([first, second])
    extra = DataProto({"z": torch.arange(12, dtype=torch.int16)})
    both = both.union(put_batch(transport, extra, like=both))
    for _ in range(10_000):
        reference, rows = both, list(range(12))
        for _ in range(choice.randrange(1, 7)):
            reference, rows = _random_step(choice, reference, rows)
        fields = choice.choice([["x"], ["z", "x"], ["y", "z"]])
        got = reader.materialize(reference, fields)
        assert got.columns == [name for name in reference.fields if name in fields]
        expected = {
            "x": torch.tensor(rows, dtype=torch.int64),
            "y": (torch.tensor(rows, dtype=torch.int64)[:, None].bfloat16() / 4).reshape(-1, 1),
            "z": torch.tensor(rows, dtype=torch.int16),
        }
        for name in fields:
            assert got[name].dtype == expected[name].dtype and torch.equal(got[name], expected[name]), (rows, name)


def _random_step(choice: random.Random, reference: RowRemoteBatch, rows: list[int]) -> tuple[RowRemoteBatch, list[int]]:
    count = len(rows)
    kind = choice.choice(["index", "mask", "slice", "reorder", "repeat", "concat", "chunk", "union", "pickle"])
    if kind == "index":
        picked = [choice.randrange(-count, count) for _ in range(choice.randrange(8))] if count else []
        return reference.index(picked), [rows[row] for row in picked]
    if kind == "mask":
        mask = [choice.random() < 0.7 for _ in rows]
        return reference.filter(mask), [row for row, kept in zip(rows, mask) if kept]
    if kind == "slice":
        start, stop = sorted(choice.choices(range(count + 1), k=2))
        return reference.slice(start, stop), rows[start:stop]
    if kind == "reorder":
        order = choice.sample(range(count), count)
        return reference.reorder(order), [rows[row] for row in order]
    if kind == "repeat" and count <= 24:
        times, interleave = choice.randrange(3), choice.random() < 0.5
        repeated = [row for row in rows for _ in range(times)] if interleave else rows * times
        return reference.repeat(times, interleave=interleave), repeated
    if kind == "concat" and count <= 24:
        half = count // 2
        return RowRemoteBatch.concat([reference.slice(half), reference, reference.slice(0, half)]), [
            *rows[half:],
            *rows,
            *rows[:half],
        ]
    if kind == "chunk":
        parts = reference.chunk(3)
        return RowRemoteBatch.concat([parts[2], parts[0]]), [*_parts(rows, 3)[2], *_parts(rows, 3)[0]]
    if kind == "union":
        return reference.select(["x", "name"]).union(reference.select(["y", "z"])), rows
    copied: RowRemoteBatch = pickle.loads(pickle.dumps(reference))
    return copied, rows


def _parts(rows: list[int], number: int) -> list[list[int]]:
    return [[rows[i] for i in part] for part in np.array_split(np.arange(len(rows)), number)]


def test_a_reference_is_tens_of_bytes_per_row_also_after_operations(transport: CountingTransport) -> None:
    reference = put_batch(transport, batch(256)).reorder(list(range(255, -1, -1)))
    joined = RowRemoteBatch.concat([reference.slice(0, 128), reference.slice(128)])
    for one in (reference, joined):
        assert len(pickle.dumps(one)) < 256 * 32


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda a, b: a.union(b), "union of 3 rows with 3 that are not the same rows"),
        (lambda a, b: a.union(a.reorder([2, 1, 0])), "union of 3 rows with 3 that are not the same in another order"),
        (lambda a, b: a.reorder([0, 0, 1]), "an order of 3 rows must name each of them once"),
        (lambda a, b: RowRemoteBatch.concat([a, b.select(["x"])]), "parts with different fields: name, y"),
        (lambda a, b: RowRemoteBatch.concat([]), "nothing to concatenate"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    transport: CountingTransport, act: Callable[[RowRemoteBatch, RowRemoteBatch], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        act(put_batch(transport, batch(3)), put_batch(transport, batch(3)))


def test_rows_of_different_shapes_are_not_joined(transport: CountingTransport) -> None:
    parts = [put_batch(transport, DataProto({"x": torch.zeros(2, width)})) for width in (3, 4)]
    with pytest.raises(ValueError, match=r"field 'x' is float32\[3\] and float32\[4\] in two parts; put rows of diff"):
        RowRemoteBatch.concat(parts)


def test_an_unknown_field_and_a_row_beyond_the_end_are_named(transport: CountingTransport) -> None:
    reference = put_batch(transport, batch(3))
    with pytest.raises(KeyError, match="no field named 'z'; the rows have: x, y, name"):
        reference.select(["z"])
    with pytest.raises(IndexError, match=r"row 0\.\.3 of a batch of 3"):
        reference.index([0, 3])
    with pytest.raises(IndexError, match="a mask of 2 for 3 rows"):
        reference.filter([True, False])
    with pytest.raises(ValueError, match="2 rows cannot be further columns of 3"):
        put_batch(transport, batch(2), like=reference)


def test_a_later_union_wins_where_both_have_a_field(transport: CountingTransport) -> None:
    reference = put_batch(transport, batch(3))
    better = reference.union(put_batch(transport, DataProto({"x": torch.full((3,), 9)}), like=reference))
    assert BatchReader(transport).materialize(better)["x"].tolist() == [9, 9, 9]
    assert sorted(better.fields) == ["name", "x", "y"]


def test_only_the_fields_asked_for_are_read(transport: CountingTransport) -> None:
    reference = put_batch(transport, batch(4))
    reference = reference.union(put_batch(transport, DataProto({"z": torch.zeros(4)}), like=reference))
    BatchReader(transport).materialize(reference, ["name"])
    BatchReader(transport).materialize(reference, ["z", "x"])
    assert transport.read == [["name"], ["x"], ["z"]]


def test_rows_that_were_read_before_are_not_read_again_in_any_order(transport: CountingTransport) -> None:
    reference, reader = put_batch(transport, batch(8)), BatchReader(transport, cache_bytes=1000)
    parts = [reader.materialize(part, ["x", "y"]) for part in reference.chunk(2)]
    transport.read.clear()
    again = reader.materialize(reference.index([7, 0, 3, 3]), ["x", "y"])
    assert transport.read == []
    assert again["x"].tolist() == [7, 0, 3, 3] and again["y"].dtype == torch.bfloat16
    again["x"][:] = 9
    parts[0]["x"][:] = 9
    assert reader.materialize(reference, ["x"])["x"].tolist() == list(range(8))
    assert seen(reader, reference) == list(range(8))
    assert transport.read == [["name"]]


def test_the_cache_stays_within_its_bound_and_forgets_what_was_not_used_for_longest(
    transport: CountingTransport,
) -> None:
    reference, reader = put_batch(transport, batch(10)), BatchReader(transport, cache_bytes=3 * 2 * 8)
    for start in (0, 2, 4, 0, 6):
        reader.materialize(reference.slice(start, start + 2), ["x"])
        assert reader.cache.num_bytes <= 48
    transport.read.clear()
    for start in (0, 4, 6):
        reader.materialize(reference.slice(start, start + 2), ["x"])
    assert transport.read == []
    reader.materialize(reference.slice(2, 4), ["x"])
    assert transport.read == [["x"]]


def test_a_batch_can_be_read_ahead(transport: CountingTransport) -> None:
    reader = BatchReader(transport)
    coming = [reader.prefetch(part, ["x"]) for part in put_batch(transport, batch(6)).chunk(3)]
    assert [one.result(timeout=10)["x"].tolist() for one in coming] == [[0, 1], [2, 3], [4, 5]]
    reader.close()


def test_reading_ahead_what_is_gone_fails_where_the_result_is_wanted(transport: CountingTransport) -> None:
    reference = put_batch(transport, batch(2))
    transport.close()
    coming = BatchReader(transport).prefetch(reference)
    with pytest.raises(RowsGone):
        coming.result(timeout=10)


def test_a_lease_frees_what_was_filtered_and_everything_at_its_end(transport: CountingTransport) -> None:
    reader = BatchReader(transport)
    with Lease(transport, "step-1") as lease:
        reference = lease.put(batch(6))
        reference = reference.union(lease.put(DataProto({"z": torch.zeros(6)}), like=reference))
        kept = reference.filter([True, False] * 3)
        assert lease.keep([kept]) == 6
        assert transport.stats().rows == 6
        assert reader.materialize(kept)["x"].tolist() == [0, 2, 4]
        with pytest.raises(RowsGone):
            reader.materialize(reference)
        assert lease.keep([kept.slice(0, 1).repeat(2)]) == 4
    assert transport.stats() == TransportStats(0, 0)


def test_a_step_that_fails_leaves_nothing_also_of_what_others_put(transport: CountingTransport) -> None:
    outside = put_batch(transport, batch(1))
    with pytest.raises(RuntimeError, match="a worker died"), Lease(transport, "step-1") as lease:
        lease.put(batch(6))
        put_batch(transport, batch(3), partition=lease.name)  # By a worker whose answer never came.
        raise RuntimeError("a worker died")
    assert transport.stats().rows == 1
    assert seen(BatchReader(transport), outside) == [0]


def test_a_transport_that_is_lost_does_not_hide_why_a_step_failed() -> None:
    class Lost(LocalTransport):
        def clear_partition(self, partition: str) -> None:
            raise DataLost("the directory has ended")

    with pytest.raises(RuntimeError, match="a worker died") as failed, Lease(Lost(), "step-1"):
        raise RuntimeError("a worker died")
    assert failed.value.__notes__ == ["rows of 'step-1' could not be freed: the directory has ended"]
    with pytest.raises(RollError, match="the directory has ended"), Lease(Lost(), "step-1"):
        pass


def test_images_and_long_dialogues_are_columns_like_others(transport: CountingTransport) -> None:
    images = [torch.rand(3, 8 + row, 9).bfloat16() for row in range(4)]
    dialogues = [[{"role": "user", "content": "hi " * row, "image": images[row][:1]}] * 20 for row in range(4)]
    columns: Mapping[str, Any] = {
        "image": images,
        "dialogue": dialogues,
        "jpeg": [bytes([row]) * 9 for row in range(4)],
    }
    reference = put_batch(transport, DataProto({"pixels": torch.rand(4, 3, 16, 16)}, columns))
    got = BatchReader(transport).materialize(reference.index([2, 0]))
    assert torch.equal(got["image"][0], images[2]) and got["image"][0].dtype == torch.bfloat16
    assert got["dialogue"][0][19]["content"] == "hi hi " and torch.equal(got["dialogue"][1][0]["image"], images[0][:1])
    assert got["jpeg"].tolist() == [bytes([2]) * 9, bytes(9)] and got["pixels"].shape == (2, 3, 16, 16)
