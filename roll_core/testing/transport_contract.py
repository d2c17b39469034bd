"""What every transport must keep, as tests to run on yours.

Subclass `TransportContract` in a test file and name the class:

    class TestMyTransport(TransportContract):
        transport_class = MyTransport
        config = {"num_storage_units": 1}
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from roll_core.errors import RollError
from roll_core.testing.contract import Contract, within
from roll_core.transport import DataLost, RowHandle, RowsGone, Transport

if TYPE_CHECKING:
    from roll_core.transport.base import Column

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

KILLED_S = 3.0
"""How long rows of a process that was killed are read: their loss may be noticed late."""

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


class TransportContract(Contract):
    """Rows x fields come out as they went in: dtype, order, raggedness, types; nothing leaks and nothing is lost."""

    transport_class: ClassVar[type[Transport]]
    config: ClassVar[Mapping[str, Any]] = {}
    """Keys of `backend_config`."""
    ray_cpus: ClassVar[int] = 4
    """Logical CPUs of the private Ray that is started where the transport reaches workers and none runs yet."""
    deadline_s: ClassVar[float] = 60.0
    """No single call may take longer."""

    def make(self) -> Transport:
        """A new, empty transport, as the driver of a run makes it."""
        given = type(self).transport_class
        return given(given.Config(**self.config))  # type: ignore[call-arg]

    @pytest.fixture(scope="class")
    @classmethod
    def shelf(cls) -> Iterator[_Shelf]:
        """The transport of a class's tests, made when first needed and closed at the end."""
        starts_ray = cls.transport_class.reaches_workers and _start_ray(cls.ray_cpus)
        shelf = _Shelf(cls().make)
        yield shelf
        shelf.close()
        if starts_ray:
            import ray

            ray.shutdown()

    @pytest.fixture
    def transport(self, shelf: _Shelf) -> Transport:
        """The transport under test; other tests use it too."""
        return shelf.transport()

    @pytest.fixture
    def put(self, transport: Transport) -> Iterator[Callable[..., RowHandle]]:
        """Puts rows that are cleared when the test ends."""
        handles: list[RowHandle] = []

        def put_rows(columns: Mapping[str, Column], num_rows: int, **options: Any) -> RowHandle:
            handle = within(self.deadline_s, "put", lambda: transport.put(columns, num_rows, **options))
            handles.append(handle)
            return handle

        yield put_rows
        for handle in handles:
            transport.clear(handle)

    def test_it_is_a_transport_with_a_config(self) -> None:
        given = type(self).transport_class
        assert issubclass(given, Transport), f"{given.__name__} is not a roll_core.transport.Transport"
        with pytest.raises(ValidationError):
            pytest.fail(
                f"{given.Config.__name__} accepts the setting no_such_setting: {given.Config(no_such_setting=3)}"
            )

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_dtype_comes_back_bit_for_bit(
        self, transport: Transport, put: Callable[..., RowHandle], dtype: torch.dtype
    ) -> None:
        bits = torch.randint(0, 2, (4, 3, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        column = bits.bool() if dtype == torch.bool else bits.view(dtype)
        got = _tensor(self._get(transport, put({"x": column}, 4)), "x")
        assert got.dtype == dtype, f"a column of {dtype} came back as {got.dtype}"
        assert got.shape == column.shape, f"a column of shape {tuple(column.shape)} came back as {tuple(got.shape)}"
        assert _same_bits(got, column), f"values of {dtype} changed on the way"

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
        got = self._get(transport, put({"x": _objects(value, [value], None)}, 3))["x"]
        assert type(got[0]) is type(value), f"{kind}: a {type(value).__name__} came back as a {type(got[0]).__name__}"
        assert got.tolist() == [value, [value], None], f"{kind} came back as another value"

    def test_ragged_rows_keep_lengths_and_dtypes(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        rows = [torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.bfloat16), torch.ones(2, 2), torch.tensor(4)]
        got = self._get(transport, put({"x": _objects(*rows)}, 4))["x"]
        for row, (there, here) in enumerate(zip(rows, got)):
            alike = isinstance(here, torch.Tensor) and here.dtype == there.dtype and torch.equal(here, there)
            assert alike, f"ragged row {row}, {there!r}, came back as {here!r}"

    def test_views_and_strides_do_not_matter(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        base = torch.arange(24.0).reshape(4, 6)
        columns = {"turned": base.T, "every_second": torch.arange(12)[::2], "spread": torch.ones(1, 3).expand(6, 3)}
        got = self._get(transport, put(columns, 6))
        for name, column in columns.items():
            assert torch.equal(_tensor(got, name), column), f"the view '{name}' came back with other values"

    def test_gradients_do_not_travel(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        got = _tensor(self._get(transport, put({"x": torch.zeros(2, requires_grad=True)}, 2)), "x")
        assert not got.requires_grad, "a column came back attached to a graph"

    def test_rows_come_back_in_the_order_asked(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.arange(6), "name": _objects(*"abcdef")}, 6)
        got = self._get(transport, _picked(handle, [4, 0, 5]))
        assert got["x"].tolist() == [4, 0, 5], f"rows 4, 0, 5 were asked, {got['x'].tolist()} came"
        assert got["name"].tolist() == ["e", "a", "f"], f"objects e, a, f were asked, {got['name'].tolist()} came"

    def test_any_choice_of_rows_is_that_of_a_list(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        first, second = put({"x": torch.arange(20)}, 20), put({"x": torch.arange(20, 32)}, 12)
        whole, choice = replace(first, row_ids=first.row_ids + second.row_ids), random.Random(0)
        for _ in range(12):
            rows = choice.choices(range(32), k=choice.randrange(40))
            got = self._get(transport, _picked(whole, rows))["x"].tolist()
            assert len(got) == len(rows), f"{len(rows)} rows of two puts were asked, some twice, and {len(got)} came"
            wrong = [place for place in range(len(rows)) if got[place] != rows[place]]
            assert not wrong, f"of {len(rows)} rows of two puts, {len(wrong)} came in another's place"

    def test_a_row_asked_twice_comes_as_two_copies(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(2, 3), "items": _objects([1], [2])}, 2)
        got = self._get(transport, _picked(handle, [1, 1, 0]))
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

    def test_no_rows_keep_type_and_shape(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        columns = {
            "t": torch.zeros(3, 5, dtype=torch.bfloat16),
            "a": np.zeros((3, 2), np.int16),
            "o": _objects(1, 2, 3),
        }
        for handle in (_picked(put(columns, 3), []), put({name: c[:0] for name, c in columns.items()}, 0)):
            got = self._get(transport, handle)
            shapes = {name: (tuple(column.shape), str(column.dtype)) for name, column in got.items()}
            assert shapes == {"t": ((0, 5), "torch.bfloat16"), "a": ((0, 2), "int16"), "o": ((0,), "object")}

    def test_a_put_is_a_snapshot(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        tensor, array, nested = torch.zeros(2), np.zeros(2), _objects([1], [2])
        handle = put({"t": tensor, "a": array, "o": nested}, 2)
        tensor += 1
        array += 1
        nested[0].append(9)
        got = {name: column.tolist() for name, column in self._get(transport, handle).items()}
        expected = {"t": [0, 0], "a": [0, 0], "o": [[1], [2]]}
        assert got == expected, f"what was changed after the put is seen by readers: {got}"

    def test_readers_do_not_see_each_others_changes(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"t": torch.zeros(2), "a": np.zeros(2), "o": _objects([1], [2])}, 2)
        first = self._get(transport, handle)
        first["t"] += 1
        first["a"] += 1
        first["o"].tolist()[0].append(9)
        got = {name: column.tolist() for name, column in self._get(transport, handle).items()}
        assert got == {"t": [0, 0], "a": [0, 0], "o": [[1], [2]]}, f"one reader's writes are seen by another: {got}"

    def test_reading_without_a_copy_gives_the_same_rows(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        handle = put({"x": torch.arange(12.0).reshape(4, 3), "o": _objects("a", [1], None, "d")}, 4)
        for rows in ([0, 1, 2, 3], [1, 2], [3, 0, 3]):
            copied = self._get(transport, _picked(handle, rows))
            viewed = transport.get(_picked(handle, rows), copy=False)
            assert {n: c.tolist() for n, c in viewed.items()} == {n: c.tolist() for n, c in copied.items()}

    def test_cleared_rows_are_gone_and_the_others_stay(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        handle = put({"x": torch.arange(4)}, 4)
        transport.clear(_picked(handle, [1, 1, 2]))
        for rows in ([0, 1, 2, 3], [2], [0, 1]):
            with pytest.raises(RowsGone):
                pytest.fail(
                    f"rows {rows}, of which some are cleared, gave {self._get(transport, _picked(handle, rows))}"
                )
        assert self._get(transport, _picked(handle, [3, 0]))["x"].tolist() == [3, 0], "rows that stayed have changed"

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
            transport.put({"x": torch.zeros(1), "f": _objects(lambda: 0)}, 1)
        assert transport.stats() == before, "a put that was refused left something behind"

    def test_a_handle_is_small_and_survives_pickling(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(256, 100), "y": _objects(*range(256))}, 256)
        assert (len(handle), handle.fields) == (256, ("x", "y"))
        packed = pickle.dumps(handle)
        allowed = 64 * 256 + 2048
        assert len(packed) <= allowed, f"a handle of 256 rows takes {len(packed)} bytes; {allowed} are allowed"
        assert self._get(transport, pickle.loads(packed))["x"].shape == (256, 100)

    def test_nothing_leaks(self, transport: Transport) -> None:
        before = transport.stats()
        for _ in range(5):
            handle = transport.put({"x": torch.zeros(64, 1000), "o": _objects(*range(64))}, 64)
            held = transport.stats().rows - before.rows
            assert held == 64, f"64 rows were put, stats counts {held}"
            assert transport.stats().num_bytes - before.num_bytes >= 64 * 4000, "stats counts too few bytes"
            transport.clear(_picked(handle, list(range(0, 64, 2))))
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

    def test_writers_and_readers_at_once(self, transport: Transport) -> None:
        def write_and_read(writer: int) -> list[Any]:
            wrong = []
            for turn in range(4):
                handle = transport.put({"x": torch.full((8, 50), writer * 100 + turn)}, 8)
                got = _tensor(transport.get(handle), "x")
                wrong += [] if (got == writer * 100 + turn).all() else [(writer, turn, got.tolist())]
                transport.clear(handle)
            return wrong

        with ThreadPoolExecutor(4) as pool:
            wrong = within(self.deadline_s * 4, "threads", lambda: list(pool.map(write_and_read, range(4))))
        assert wrong == [[]] * 4, f"rows of one writer were read by another: {wrong}"

    def test_a_large_batch_comes_back_whole(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        columns = {f"field_{i}": torch.arange(64 * 4096).reshape(64, 4096) + i for i in range(8)}
        got = self._get(transport, put(columns, 64))
        wrong = [name for name, column in columns.items() if not torch.equal(_tensor(got, name), column)]
        assert wrong == [], f"of a batch of 16 MiB these fields changed: {wrong}"

    def test_other_processes_are_clients_of_the_same_rows(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        self._skip_unless_it_reaches_workers()
        columns = {"x": torch.arange(6).bfloat16(), "o": _objects("a", None, [1], (2,), "\ud800", 2**70)}
        handle = put(columns, 6)
        there = self._in_worker(_read, transport, _picked(handle, [5, 0]))
        assert there == (["torch.bfloat16", "object"], [[5.0, 0.0], [2**70, "a"]]), f"a worker read {there}"
        theirs = self._in_worker(_write, transport, 3)
        assert self._get(transport, theirs)["x"].tolist() == [0, 1, 2], "rows that a worker put cannot be read here"
        self._in_worker(_clear, transport, theirs)
        with pytest.raises(RowsGone):
            self._get(transport, theirs)
        transport.clear(handle)
        assert self._in_worker(_is_gone, transport, handle), "rows cleared here can still be read by a worker"

    def test_rows_of_a_producer_that_was_killed_are_whole_or_lost_in_words(self, transport: Transport) -> None:
        self._skip_unless_it_reaches_workers()
        import ray

        producer = ray.remote(num_cpus=0)(_Producer).remote()
        handle = ray.get(producer.put.remote(transport), timeout=self.deadline_s)
        ray.kill(producer)
        deadline = time.monotonic() + KILLED_S
        while time.monotonic() < deadline:
            try:
                got = self._get(transport, handle)["x"].tolist()
            except DataLost:
                break
            assert got == [1.0] * 4, f"rows of a producer that was killed came back as {got}"
            time.sleep(0.2)
        transport.clear(handle)

    def test_a_forked_process_reads_the_rows_or_is_told_why_not(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        handle = put({"x": torch.arange(4)}, 4)
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        child = context.Process(target=_read_forked, args=(transport, handle, answers), daemon=True)
        child.start()
        child.join(self.deadline_s)
        assert child.exitcode is not None, f"a get in a forked process did not end within {self.deadline_s:g} s"
        assert child.exitcode == 0, f"a get in a forked process ended it with {child.exitcode}"
        read, told = answers.get()
        assert told or read == [0, 1, 2, 3], f"a forked process read {read}"
        assert self._get(transport, handle)["x"].tolist() == [0, 1, 2, 3], "rows changed when a process was forked"

    def test_close_frees_everything(self, shelf: _Shelf) -> None:
        transport = shelf.transport()
        handle = transport.put({"x": torch.zeros(4)}, 4)
        shelf.close()
        with pytest.raises(Exception):  # noqa: B017 - what a closed transport raises is its own choice
            pytest.fail(f"a closed transport still gave {transport.get(handle)}")

    def _get(self, transport: Transport, handle: RowHandle, fields: Sequence[str] | None = None) -> dict[str, Column]:
        return within(self.deadline_s, "get", lambda: transport.get(handle, fields))

    def _skip_unless_it_reaches_workers(self) -> None:
        if not type(self).transport_class.reaches_workers:
            pytest.skip(f"{type(self).transport_class.__name__} serves one process only (reaches_workers is False)")

    def _in_worker(self, function: Callable[..., Any], *arguments: Any) -> Any:
        import ray

        return ray.get(ray.remote(num_cpus=0)(function).remote(*arguments), timeout=self.deadline_s)


class _Shelf:
    """One transport for many tests, as making one may take a while; made anew after it was closed."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._transport: Transport | None = None

    def transport(self) -> Transport:
        if self._transport is None:
            self._transport = self._make()
        return self._transport

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            within(60.0, "close", transport.close)


def _start_ray(num_cpus: int) -> bool:
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=num_cpus, **options)
    return True


def _read(transport: Transport, handle: RowHandle) -> tuple[list[str], list[Any]]:
    columns = transport.get(handle).values()
    return [str(column.dtype) for column in columns], [column.tolist() for column in columns]


def _write(transport: Transport, num_rows: int) -> RowHandle:
    return transport.put({"x": torch.arange(num_rows)}, num_rows)


def _clear(transport: Transport, handle: RowHandle) -> None:
    transport.clear(handle)


class _Producer:
    """Puts rows in a process of its own."""

    def put(self, transport: Transport) -> RowHandle:
        return transport.put({"x": torch.ones(4)}, 4)


def _read_forked(transport: Transport, handle: RowHandle, answers: Any) -> None:
    try:
        answers.put((transport.get(handle)["x"].tolist(), ""))
    except RollError as error:
        answers.put(([], str(error)))


def _is_gone(transport: Transport, handle: RowHandle) -> bool:
    try:
        transport.get(handle)
    except RowsGone:
        return True
    return False


def _picked(handle: RowHandle, rows: Sequence[int]) -> RowHandle:
    return replace(handle, row_ids=tuple(handle.row_ids[row] for row in rows))


def _objects(*values: Any) -> Any:
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def _tensor(columns: Mapping[str, Column], name: str) -> torch.Tensor:
    column = columns[name]
    assert isinstance(column, torch.Tensor), f"the tensor column '{name}' came back as a {type(column).__name__}"
    return column


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))
