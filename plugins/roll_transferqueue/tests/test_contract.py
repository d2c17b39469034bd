"""TransferQueue keeps the contract of transports."""

import os
import time
from collections.abc import Callable

import psutil
import pytest
import ray
import torch
from roll_transferqueue.transport import TransferQueueTransport

from roll_core.testing.transport_case import Shelf
from roll_core.testing.transport_contract import TransportContract
from roll_core.transport import RowHandle

MIB = 2**20


class TestTransferQueueTransport(TransportContract):
    transport_class = TransferQueueTransport
    config = {"backend": {"SimpleStorage": {"num_data_storage_units": 2}}}

    def test_clearing_the_last_row_of_a_put_frees_the_units_memory(self, transport: TransferQueueTransport) -> None:
        before = held_mib(transport)
        handle = transport.put({"x": torch.ones(4, 64 * MIB, dtype=torch.uint8)}, 4)
        assert held_mib(transport) > before + 200
        transport.clear(handle)
        assert held_mib(transport) < before + 60

    @pytest.mark.slow
    def test_its_cpus_are_free_again_once_it_is_closed(self, shelf: Shelf) -> None:
        shelf.transport()
        assert ray.available_resources().get("CPU", 0) < self.ray_cpus
        shelf.close()
        wait_for(lambda: ray.available_resources().get("CPU", 0) == self.ray_cpus)

    @pytest.mark.slow
    def test_a_gibibyte_goes_in_one_put(self, transport: TransferQueueTransport) -> None:
        column = torch.arange(2**28, dtype=torch.int32).reshape(256, -1)
        handle = transport.put({"x": column}, 256)
        some = RowHandle(handle.row_ids[200::-50], handle.schema)
        assert torch.equal(transport.get(some)["x"], column[[200, 150, 100, 50, 0]])
        assert torch.equal(transport.get(handle)["x"], column)
        transport.clear(handle)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come about within 60 s"
        time.sleep(0.1)


def held_mib(transport: TransferQueueTransport) -> float:
    """Resident memory of the storage units."""
    total = 0
    for name in transport.service.unit_names:
        handle = ray.get_actor(name, namespace=transport.service.namespace)
        total += psutil.Process(ray.get(handle.__ray_call__.remote(lambda _self: os.getpid()))).memory_info().rss
    return total / MIB
