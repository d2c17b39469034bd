"""What TransferQueue would wait for without end, or lose without a word, is an error in time."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
import torch
from roll_transferqueue import transport as module
from roll_transferqueue.config import TransferQueueConfig
from roll_transferqueue.service import CONTROLLER, CONTROLLER_NAMESPACE, LOOK_S
from roll_transferqueue.transport import TransferQueueTransport

from roll_core.errors import RollError
from roll_core.transport import CapacityError, DataLost, RowHandle, TransportTimeout

pytestmark = pytest.mark.slow

UNITS = {"num_data_storage_units": 2, "total_storage_size": 100}


@pytest.fixture(scope="module")
def transport() -> Iterator[TransferQueueTransport]:
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    config = {"backend": {"SimpleStorage": UNITS}, "timeout_s": 8}
    made = TransferQueueTransport(TransferQueueConfig.model_validate(config))
    yield made
    made.close()
    ray.shutdown()


def test_more_storage_units_than_ray_has_room_for_are_refused(transport: TransferQueueTransport) -> None:
    config = {"backend": {"SimpleStorage": {"num_data_storage_units": 16}}}
    with pytest.raises(RollError, match=r"asks for 17 logical CPUs of Ray, .* and the cluster has 3\n"):
        TransferQueueTransport(TransferQueueConfig.model_validate(config))


def test_a_second_one_in_the_same_cluster_is_refused(transport: TransferQueueTransport) -> None:
    with pytest.raises(RollError, match="another TransferQueue runs in this Ray cluster"):
        TransferQueueTransport()


def test_a_forked_process_is_a_client_too(transport: TransferQueueTransport) -> None:
    handle = transport.put({"x": torch.arange(4)}, 4)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_read_and_put, args=(transport, handle, results), daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    read, theirs = results.get()
    assert read == [0, 1, 2, 3]
    assert transport.get(theirs)["x"].tolist() == [1, 1]
    assert transport.get(handle)["x"].tolist() == [0, 1, 2, 3]
    transport.clear(theirs)
    transport.clear(handle)


def test_more_rows_than_it_may_hold_are_refused_and_leave_nothing(transport: TransferQueueTransport) -> None:
    handle = transport.put({"x": torch.zeros(90)}, 90)
    with pytest.raises(CapacityError, match=r"did not take 20 rows of 80 bytes\n  cause: .*capacity exceeded"):
        transport.put({"x": torch.zeros(20)}, 20)
    assert transport.stats().rows == 90
    transport.clear(handle)


def test_more_bytes_than_a_message_holds_are_refused(
    transport: TransferQueueTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MESSAGE_BYTES", 2**20)
    assert len(transport.put({"x": torch.zeros(2, 2**18)}, 2)) == 2
    with pytest.raises(CapacityError, match=r"a message of TransferQueue holds less than 4 GiB\n  try: a larger num_d"):
        transport.put({"x": torch.zeros(2, 2**18 + 1)}, 2)


def test_what_does_not_answer_ends_in_a_timeout_and_works_again_afterwards(transport: TransferQueueTransport) -> None:
    handle = transport.put({"x": torch.zeros(2)}, 2)
    (pid, _other) = (_pid(name, transport.service.namespace) for name in transport.service.unit_names)
    os.kill(pid, 19)
    began = time.monotonic()
    try:
        with pytest.raises(TransportTimeout, match="TransferQueue: get did not end within 8 s"):
            transport.get(handle)
    finally:
        os.kill(pid, 18)
    assert time.monotonic() - began < 40
    assert transport.get(handle)["x"].tolist() == [0, 0]


def test_a_storage_unit_that_dies_is_told_by_every_operation(transport: TransferQueueTransport) -> None:
    handle = transport.put({"x": torch.zeros(4)}, 4)
    os.kill(_pid("TransferQueueStorageUnit#1", transport.service.namespace), 9)
    for operation in (
        lambda: transport.get(handle),
        lambda: transport.put({"x": torch.zeros(4)}, 4),
        lambda: transport.clear(handle),
    ):
        began = time.monotonic()
        with pytest.raises(DataLost, match=r"processes of TransferQueue have died: TransferQueueStorageUnit#1\n"):
            operation()
        assert time.monotonic() - began < 5 * LOOK_S


def test_a_controller_that_dies_is_told(transport: TransferQueueTransport) -> None:
    os.kill(_pid(CONTROLLER, CONTROLLER_NAMESPACE), 9)
    with pytest.raises(DataLost, match=f"{CONTROLLER}"):
        transport.stats()


def _pid(name: str, namespace: str) -> int:
    handle = ray.get_actor(name, namespace=namespace)
    pid: int = ray.get(handle.__ray_call__.remote(lambda _self: os.getpid()), timeout=10)
    return pid


def _read_and_put(transport: TransferQueueTransport, handle: RowHandle, results: Any) -> None:
    results.put((transport.get(handle)["x"].tolist(), transport.put({"x": torch.ones(2, dtype=torch.int64)}, 2)))
