"""What the two ranks of a test do, and the spawning of them."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

Job = Callable[[int], Any]
RANKS = 2


def run_ranks(jobs: dict[str, Job], folder: Path, backend: str) -> dict[str, list[Any]]:
    """What each job gives on each rank, or the text of its error. Rank k is on npu:k, and sees all devices."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(_rank, (jobs, backend, port, folder), nprocs=RANKS)
    results = [torch.load(folder / f"results-{rank}", weights_only=False) for rank in range(RANKS)]
    return {name: [result[name] for result in results] for name in jobs}


def _rank(rank: int, jobs: dict[str, Job], backend: str, port: int, folder: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    results = {}
    for name, job in jobs.items():
        try:
            results[name] = job(rank)
        except (RuntimeError, ValueError) as error:
            results[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
    torch.save(results, folder / f"results-{rank}")
    dist.destroy_process_group()


def _mine(rank: int, device: str = "npu") -> torch.Tensor:
    return torch.arange(4.0, device=device) + 10 * rank


def collectives(rank: int, device: str = "npu") -> list[Any]:
    """Results of every collective on tensors of the device, as lists."""
    results: list[torch.Tensor] = []
    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        tensor = _mine(rank, device)
        dist.all_reduce(tensor, op=operation)
        results.append(tensor)
    tensor = _mine(rank, device)
    dist.broadcast(tensor, src=1)
    gathered = [torch.empty(4, device=device) for _ in range(RANKS)]
    dist.all_gather(gathered, _mine(rank, device))
    whole = torch.empty(8, device=device)
    dist.all_gather_into_tensor(whole, _mine(rank, device))
    part, average = torch.empty(2, device=device), torch.empty(2, device=device)
    dist.reduce_scatter_tensor(part, _mine(rank, device))
    dist.reduce_scatter_tensor(average, _mine(rank, device), op=dist.ReduceOp.AVG)
    exchanged = torch.empty(4, device=device)
    dist.all_to_all_single(exchanged, _mine(rank, device))
    received = torch.empty(4, device=device)
    pair = [dist.P2POp(dist.isend, _mine(rank, device), 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    objects: list[Any] = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    results += [tensor, *gathered, whole, part, average, exchanged, received]
    assert all(result.device.type == device for result in results)
    return [*(result.tolist() for result in results), objects]


def on_host(rank: int) -> list[Any]:
    """The same on tensors of the host."""
    return collectives(rank, "cpu")


def sum_of_host(rank: int) -> list[float]:
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    return tensor.tolist()


def sum_of_device(rank: int) -> list[float]:
    tensor = torch.ones(2, device="npu")
    dist.all_reduce(tensor)
    return tensor.tolist()


def scaled_sum(rank: int) -> list[float]:
    tensor = torch.ones(2, device="npu")
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.25))
    return tensor.tolist()


def forgotten_device(rank: int) -> None:
    """A group whose ranks never chose their device: each uses the first."""
    group = dist.new_group()
    dist.all_reduce(torch.ones(2, device="npu:0"), group=group)


def second_device(rank: int) -> None:
    """A process that uses another device in a group than before."""
    dist.all_reduce(torch.ones(2, device="npu"))
    dist.all_reduce(torch.ones(2, device=f"npu:{rank + 2}"))


def bitwise(rank: int) -> None:
    dist.all_reduce(torch.ones(2, dtype=torch.int64, device="npu"), op=dist.ReduceOp.BOR)


def with_gaps(rank: int) -> None:
    dist.all_reduce(torch.ones(4, device="npu")[::2])


def gather(rank: int) -> None:
    parts = [torch.empty(2, device="npu") for _ in range(RANKS)] if rank == 0 else None
    dist.gather(torch.ones(2, device="npu"), parts)
