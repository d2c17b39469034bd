"""The ray transport: what its contract does not say, and what happens when processes die."""

import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch

from roll_core.cluster.session import Session
from roll_core.errors import RollError
from roll_core.transport import CapacityError, DataLost, RowHandle, RowsGone, TransportStats, TransportTimeout
from roll_core.transport.ray_store import RayTransport, RayTransportConfig

MIB = 2**20
Make = Callable[..., RayTransport]


@pytest.fixture
def make(session: Session) -> Iterator[Make]:
    made: list[RayTransport] = []

    def make_one(**config: Any) -> RayTransport:
        made.append(RayTransport(RayTransportConfig(**config)))
        # Short deadlines of tests are for answers, not for the start of a process.
        ray.get(made[-1]._directory.actor.__ray_ready__.remote())
        return made[-1]

    yield make_one
    for transport in made:
        transport.close()


@ray.remote(num_cpus=0)
class Worker:
    """Another process with a client of its own."""

    def __init__(self, transport: RayTransport) -> None:
        self.transport = transport

    def pid(self) -> int:
        return os.getpid()

    def put(self, num_bytes: int) -> RowHandle:
        return self.transport.put({"x": torch.ones(4, num_bytes // 4, dtype=torch.uint8)}, 4)

    def total(self, handle: RowHandle) -> float:
        return float(self.transport.get(handle)["x"].double().sum())

    def spoil(self, handle: RowHandle) -> None:
        self.transport.get(handle)["x"].fill_(7)

    def clear(self, handle: RowHandle) -> None:
        self.transport.clear(handle)

    @ray.method(num_returns="streaming")
    def make(self, num_bytes: int) -> Iterator[Any]:
        columns = {"x": torch.ones(4, num_bytes // 4, dtype=torch.uint8), "name": np.array(list("abcd"), object)}
        yield from self.transport.pack(columns, 4)

    @ray.method(num_returns="streaming")
    def fail(self) -> Iterator[Any]:
        for number, part in enumerate(self.transport.pack({"x": torch.ones(4)}, 4)):
            if number:
                raise RollError("the reward has no file")
            yield part


def test_another_process_reads_and_clears_and_cannot_spoil_what_others_read(make: Make) -> None:
    transport = make()
    worker, handle = Worker.remote(transport), transport.put({"x": torch.ones(3, 4)}, 3)
    ray.get(worker.spoil.remote(handle))
    assert ray.get(worker.total.remote(handle)) == 12
    ray.get(worker.clear.remote(handle))
    with pytest.raises(RowsGone, match="3 of 3 rows are not here"):
        transport.get(handle)
    assert transport.stats() == TransportStats(0, 0)


def test_views_share_memory_where_they_are_asked_for_and_copies_do_not(make: Make) -> None:
    transport = make()
    handle = transport.put({"x": torch.ones(3, 4)}, 3)
    addresses = {transport.get(handle, copy=False)["x"].data_ptr() for _ in range(2)}
    copies = [transport.get(handle)["x"] for _ in range(2)]
    assert len(addresses) == 1
    assert len({copy.data_ptr() for copy in copies} | addresses) == 3


def test_large_fields_are_objects_of_their_own_and_the_others_share_one(make: Make) -> None:
    transport = make(split_mb=1)
    columns = {"big": torch.zeros(2, MIB), "also": torch.zeros(2, MIB), "small": torch.zeros(2), "ids": torch.ones(2)}
    *groups, _manifest = transport.pack(columns, 2)
    assert [len(group) for group in groups] == [2, 1, 1]
    assert list(transport.get(transport.put(columns, 2))) == list(columns)


def test_what_a_method_packed_outlives_the_worker_that_made_it(make: Make) -> None:
    transport = make()
    worker = Worker.remote(transport)
    handle = transport.adopt(list(worker.make.remote(4 * MIB)))
    os.kill(ray.get(worker.pid.remote()), 9)
    _await_death(worker)
    columns = transport.get(handle)
    assert float(columns["x"].double().sum()) == 4 * MIB and columns["name"].tolist() == list("abcd")


def test_what_a_method_failed_to_pack_is_its_own_error_and_leaves_nothing(make: Make) -> None:
    transport = make()
    with pytest.raises(RollError, match="the reward has no file"):
        transport.adopt(list(Worker.remote(transport).fail.remote()))
    assert transport.stats() == TransportStats(0, 0)


def test_rows_of_a_dead_producer_are_lost_with_a_cause(make: Make) -> None:
    transport = make()
    handle = _put_by_one_that_dies(transport)
    # Ray may serve them for a moment longer, as they were.
    with pytest.raises(DataLost, match=r"lost with the process that put them\n  cause: .*\n  try: ownership"):
        _until(10, lambda: float(transport.get(handle)["x"].double().sum()), 4 * MIB)


def test_rows_that_were_copied_outlive_their_producer(make: Make) -> None:
    transport = make(ownership="copied")
    handle = _put_by_one_that_dies(transport)
    time.sleep(1)
    assert float(transport.get(handle)["x"].double().sum()) == 4 * MIB


def test_a_dead_directory_is_told_at_once_by_every_operation(make: Make) -> None:
    transport = make()
    handle = transport.put({"x": torch.ones(2)}, 2)
    packed = pickle.dumps(transport)
    ray.kill(transport._directory.actor)
    operations: list[Callable[[], object]] = [
        lambda: transport.get(handle),
        lambda: transport.put({"x": torch.ones(2)}, 2),
        lambda: transport.clear(handle),
        transport.stats,
    ]
    for operation in operations:
        with pytest.raises(DataLost, match="the directory of the ray transport has ended, and with it all rows"):
            operation()
    with pytest.raises(DataLost, match="resume from the last checkpoint"):
        pickle.loads(packed)


def test_a_directory_that_does_not_answer_ends_in_a_timeout(make: Make) -> None:
    transport = make(timeout_s=3)
    handle = transport.put({"x": torch.ones(2)}, 2)
    process = ray.get(transport._directory.actor.__ray_call__.remote(lambda _self: os.getpid()))
    os.kill(process, 19)
    try:
        with pytest.raises(TransportTimeout, match="did not answer within 3 s"):
            transport.get(handle)
    finally:
        os.kill(process, 18)


def test_a_put_waits_for_room_and_says_when_none_was_made(make: Make) -> None:
    transport = make(max_bytes=4 * MIB, timeout_s=5)
    column = torch.zeros(3, MIB, dtype=torch.uint8)
    handle = transport.put({"x": column}, 3)
    with pytest.raises(CapacityError, match=r"no room for 3.0 MiB within 5 s: 3.0 of 4.0 MiB are held"):
        transport.put({"x": column}, 3)
    with pytest.raises(CapacityError, match=r"a put of 6.0 MiB, and the transport holds at most 4.0 MiB"):
        transport.put({"x": column, "y": column}, 3)
    worker = Worker.remote(transport)
    waiting = worker.put.remote(3 * MIB)
    time.sleep(0.2)
    transport.clear(handle)
    assert len(ray.get(waiting)) == 4


def test_room_that_a_producer_set_aside_before_it_died_comes_back(make: Make) -> None:
    transport = make(max_bytes=4 * MIB)
    assert transport._ask("reserve", "dead", 3 * MIB, 0.3)
    assert len(transport.put({"x": torch.zeros(3, MIB, dtype=torch.uint8)}, 3)) == 3


@pytest.mark.parametrize("num_bytes", [MIB, MIB + 1, 5 * MIB + 3])
def test_fields_that_ray_was_given_in_pieces_are_whole_and_not_copied(make: Make, num_bytes: int) -> None:
    transport = make()
    columns = {name: torch.randint(0, 255, (1, num_bytes), dtype=torch.uint8) for name in ("x", "y")}
    handle = transport.put(columns, 1)
    first, again = (transport.get(handle, copy=False) for _ in range(2))
    for name, column in columns.items():
        assert torch.equal(first[name], column)
        assert first[name].data_ptr() == again[name].data_ptr()


def test_clearing_the_last_row_of_a_put_frees_its_memory(make: Make) -> None:
    transport = make()
    before = plasma_mib()
    handle = transport.put({"x": torch.ones(4, 64 * MIB, dtype=torch.uint8)}, 4)
    # What earlier tests put may still be on its way out, so only that much is certain.
    assert plasma_mib() >= 256
    transport.clear(RowHandle(handle.row_ids[:3], handle.schema))
    assert plasma_mib() >= 256
    transport.clear(handle)
    deadline = time.monotonic() + 10
    while plasma_mib() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert plasma_mib() <= before


@pytest.mark.slow
def test_a_gibibyte_goes_in_one_put(make: Make) -> None:
    transport = make()
    column = torch.arange(2**28, dtype=torch.int32).reshape(256, -1)
    handle = transport.put({"x": column, "row": torch.arange(256)}, 256)
    assert torch.equal(transport.get(handle)["x"], column)
    some = transport.get(RowHandle(handle.row_ids[200::-50], handle.schema))
    assert torch.equal(some["x"], column[[200, 150, 100, 50, 0]])


def test_many_puts_go_through_a_small_store_without_a_leak(make: Make) -> None:
    transport = make(max_bytes=200 * MIB)
    for _ in range(30):
        transport.clear(transport.put({"x": torch.zeros(32, MIB, dtype=torch.uint8)}, 32))
    assert transport.stats() == TransportStats(0, 0)


def test_a_forked_process_is_told_that_ray_does_not_survive_a_fork(make: Make) -> None:
    transport = make()
    transport._directory._process += 1
    with pytest.raises(RollError, match=r"was forked from process \d+, which uses Ray"):
        transport.stats()


def plasma_mib() -> int:
    from ray._private.internal_api import memory_summary

    # Its own search finds every instance on the machine, those of other tests too.
    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    found = re.search(r"Plasma memory usage (\d+) MiB", summary)
    assert found is not None
    return int(found[1])


def _put_by_one_that_dies(transport: RayTransport) -> RowHandle:
    worker = Worker.remote(transport)
    handle: RowHandle = ray.get(worker.put.remote(4 * MIB))
    os.kill(ray.get(worker.pid.remote()), 9)
    _await_death(worker)
    return handle


def _await_death(worker: Any) -> None:
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(worker.pid.remote(), timeout=30)


def _until(seconds: float, read: Callable[[], float], expected: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert read() == expected
        time.sleep(0.1)
