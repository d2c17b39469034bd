"""The collective backend `hccl` of the simulated NPU: what it computes, and what it refuses as the real one does."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.simulated_npu.on_device import rank_jobs as jobs

REFUSED = {
    "a forgotten set_device": (jobs.forgotten_device, "ranks 0 and 1 of a group are both on NPU"),
    "two devices in one process": (jobs.second_device, "a process has one NPU in a group"),
    "bitwise reduction": (jobs.bitwise, "Cannot use bitwise reductions with HCCL"),
    "a tensor with gaps": (jobs.with_gaps, "contiguous"),
    "gather": (jobs.gather, "does not support gather"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    work: dict[str, Any] = {"device": jobs.collectives, "host": jobs.on_host, "scaled": jobs.scaled_sum}
    work |= {name: job for name, (job, _message) in REFUSED.items()}
    return jobs.run_ranks(work, tmp_path_factory.mktemp("both"), "cpu:gloo,npu:hccl")


def test_collectives_on_the_device_give_what_they_give_on_the_host(found: dict[str, list[Any]]) -> None:
    for ours, theirs in zip(found["device"], found["host"], strict=True):
        assert isinstance(ours, list), ours
        assert ours == theirs


def test_a_scaled_sum_is_scaled_before_it_is_summed(found: dict[str, list[Any]]) -> None:
    assert found["scaled"] == [[0.5, 0.5]] * 2


@pytest.mark.parametrize("fault", REFUSED)
def test_what_the_real_backend_refuses_is_refused(found: dict[str, list[Any]], fault: str) -> None:
    for message in found[fault]:
        assert isinstance(message, str) and REFUSED[fault][1] in message


def test_a_group_of_gloo_alone_has_nothing_for_tensors_on_devices(tmp_path: Path) -> None:
    found = jobs.run_ranks({"device": jobs.sum_of_device, "host": jobs.sum_of_host}, tmp_path, "cpu:gloo")
    assert found["host"] == [[2, 2]] * 2
    assert all("No backend type associated with device type npu" in message for message in found["device"])


def test_a_group_of_hccl_alone_has_nothing_for_tensors_of_the_host(tmp_path: Path) -> None:
    found = jobs.run_ranks({"device": jobs.sum_of_device, "host": jobs.sum_of_host}, tmp_path, "hccl")
    assert found["device"] == [[2, 2]] * 2
    assert all("No backend type associated with device type cpu" in message for message in found["host"])


def test_another_vendors_backend_is_refused() -> None:
    with pytest.raises((RuntimeError, ValueError)):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized() and not torch.cuda.is_available()
