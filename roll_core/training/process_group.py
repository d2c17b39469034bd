"""Joining the ranks of one role into a process group."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from roll_core.context import WorkerContext
from roll_core.platforms.base import Platform
from roll_core.training.base import Tally

T = TypeVar("T")


def join(platform: Platform, context: WorkerContext) -> bool:
    """Join the role's process group; False where this process is already in one of the same shape, which is used.

    Host tensors always have gloo beside the device's own collectives: offloaded weights, checkpoints and
    metrics are reduced where they are.

    Raises:
        RuntimeError: this process already belongs to a group of another shape.
    """
    if dist.is_initialized():
        standing = (dist.get_rank(), dist.get_world_size())
        if standing != (context.rank, context.world_size):
            raise RuntimeError(
                f"role '{context.role}' is rank {context.rank} of {context.world_size}, but this process is already "
                f"rank {standing[0]} of {standing[1]} in another process group"
            )
        return False
    backends = {"cpu": "gloo", platform.device_type: platform.collective_backend}
    if platform.device_type != "cpu":
        platform.torch.set_device(platform.device(0))
    # torch warns about every group whose one backend is spelled with its device.
    spelled = [f"{device}:{backend}" for device, backend in backends.items()]
    dist.init_process_group(
        ",".join(spelled) if len(spelled) > 1 else platform.collective_backend,
        store=_store(context),
        rank=context.rank,
        world_size=context.world_size,
        timeout=timedelta(seconds=context.timeout_s),
    )
    return True


def _store(context: WorkerContext) -> Any:
    if context.world_size == 1 and context.master_port == 0:
        return dist.HashStore()  # type: ignore[attr-defined]
    return dist.TCPStore(  # type: ignore[attr-defined]
        context.master_addr,
        context.master_port,
        context.world_size,
        is_master=context.rank == 0,
        timeout=timedelta(seconds=context.timeout_s),
    )


def mesh(platform: Platform, num_ranks: int, fsdp_size: int) -> DeviceMesh:
    """All ranks in one line, or copies of the model side by side when `fsdp_size` is a part of them."""
    if fsdp_size <= 1 or fsdp_size >= num_ranks:
        return init_device_mesh(platform.device_type, (num_ranks,), mesh_dim_names=("fsdp",))
    shape = (num_ranks // fsdp_size, fsdp_size)
    return init_device_mesh(platform.device_type, shape, mesh_dim_names=("ddp", "fsdp"))


def largest(number: int) -> int:
    """The largest of a number over all ranks."""
    if dist.get_world_size() == 1:
        return number
    value = torch.tensor(number)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value)


def gather(value: T) -> list[T]:
    """A picklable value of every rank, in the order of the ranks."""
    if dist.get_world_size() == 1:
        return [value]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered


def add_up(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """The tallies of all ranks added in the order of the ranks; a rank may lack a name."""
    total: dict[str, Tally] = {}
    for of_rank in gather(dict(tallies)):
        for name, tally in of_rank.items():
            total[name] = total[name] + tally if name in total else tally
    return total
