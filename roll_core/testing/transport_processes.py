"""Tests of a transport's clients: threads, workers, forked processes, and producers that are killed."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch

from roll_core.errors import RollError
from roll_core.testing.contract import within
from roll_core.testing.transport_case import TransportCase, objects, picked, tensor
from roll_core.transport import DataLost, RowHandle, RowsGone, Transport

if TYPE_CHECKING:
    pass


KILLED_S = 3.0
"""How long rows of a process that was killed are read: their loss may be noticed late."""


class TransportProcesses(TransportCase):
    """Handles are small, and whoever has one reads the same rows or is told why not."""

    def test_a_handle_is_small_and_survives_pickling(self, transport: Transport, put: Callable[..., RowHandle]) -> None:
        handle = put({"x": torch.zeros(256, 100), "y": objects(*range(256))}, 256)
        assert (len(handle), handle.fields) == (256, ("x", "y"))
        packed = pickle.dumps(handle)
        allowed = 64 * 256 + 2048
        assert len(packed) <= allowed, f"a handle of 256 rows takes {len(packed)} bytes; {allowed} are allowed"
        assert self._get(transport, pickle.loads(packed))["x"].shape == (256, 100)

    def test_writers_and_readers_at_once(self, transport: Transport) -> None:
        def write_and_read(writer: int) -> list[Any]:
            wrong = []
            for turn in range(4):
                handle = transport.put({"x": torch.full((8, 50), writer * 100 + turn)}, 8)
                got = tensor(transport.get(handle), "x")
                wrong += [] if (got == writer * 100 + turn).all() else [(writer, turn, got.tolist())]
                transport.clear(handle)
            return wrong

        with ThreadPoolExecutor(4) as pool:
            wrong = within(self.deadline_s * 4, "threads", lambda: list(pool.map(write_and_read, range(4))))
        assert wrong == [[]] * 4, f"rows of one writer were read by another: {wrong}"

    def test_other_processes_are_clients_of_the_same_rows(
        self, transport: Transport, put: Callable[..., RowHandle]
    ) -> None:
        self._skip_unless_it_reaches_workers()
        columns = {"x": torch.arange(6).bfloat16(), "o": objects("a", None, [1], (2,), "\ud800", 2**70)}
        handle = put(columns, 6)
        there = self._in_worker(_read, transport, picked(handle, [5, 0]))
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
