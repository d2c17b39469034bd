"""The directory of the ray transport, without Ray: its references are plain names here."""

from collections.abc import Sequence

import numpy as np

from roll_core.transport import TransportStats
from roll_core.transport.directory import Directory, Found, Manifest, Missing


def manifest(chunk: str, num_rows: int = 4, num_bytes: int = 10, partition: str = "") -> Manifest:
    return Manifest(chunk, partition, num_rows, num_bytes, {"x": 0, "y": 1}, b"columns")


def rows(*numbers: int) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def held(*chunks: Manifest) -> Directory:
    directory = Directory(100)
    for one in chunks:
        assert directory.add(one, [f"{one.chunk} first", f"{one.chunk} second"])
    return directory


def test_only_groups_of_fields_that_are_asked_for_are_told() -> None:
    directory = held(manifest("a"), manifest("b"))
    found = directory.find({"a": rows(0, 3), "b": rows(1)}, ["y"])
    assert found == {"a": Found(b"columns", {1: "a second"}), "b": Found(b"columns", {1: "b second"})}


def test_what_is_reserved_takes_room_until_it_is_added_or_overdue() -> None:
    directory = Directory(15)
    assert directory.reserve("a", 10, 60)
    assert not directory.add(manifest("b"), ["first", "second"])
    assert directory.add(manifest("a"), ["first", "second"])
    assert directory.stats() == TransportStats(4, 10)
    directory.clear_partition("")
    assert directory.reserve("c", 10, -1)
    assert directory.reserve("d", 10, 60)


def test_rows_are_held_until_they_or_their_partition_are_cleared() -> None:
    directory = held(manifest("a", partition="step"), manifest("b", partition="step"), manifest("c"))
    directory.clear({"a": rows(0, 1, 2)})
    assert directory.stats() == TransportStats(9, 30)
    directory.clear({"a": rows(3, 3, 9)})
    assert directory.stats() == TransportStats(8, 20)
    directory.clear_partition("step")
    assert directory.stats() == TransportStats(4, 10)
    assert directory.find({"b": rows(2, 0, 2)}, ["x"]) == Missing(2, "b.0")


def test_rows_that_are_missing_are_told_whatever_else_is_there() -> None:
    directory = held(manifest("a"))
    directory.clear({"a": rows(1), "unknown": rows(0)})
    expected: Sequence[tuple[dict[str, bytes], Missing]] = [
        ({"a": rows(0, 1)}, Missing(1, "a.1")),
        ({"a": rows(0, 4, 7)}, Missing(2, "a.4")),
        ({"a": rows(0), "b": rows(5)}, Missing(1, "b.5")),
    ]
    for asked, missing in expected:
        assert directory.find(asked, ["x"]) == missing
