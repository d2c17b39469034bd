"""A process group between a trainer and its engines, beside whatever groups each of them has."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


def join_group(*, address: str, port: int, rank: int, world_size: int, backend: str, timeout_s: float) -> Any:
    """Join a group of processes that have no default group in common. Rank 0 listens on `port`.

    torch offers this only through the helper behind `new_group`; its keyword for backend options was renamed
    between releases, so it is not passed.
    """
    timeout = timedelta(seconds=timeout_s)
    store = dist.TCPStore(address, port, world_size, is_master=rank == 0, timeout=timeout)  # type: ignore[attr-defined]
    helper = distributed_c10d._new_process_group_helper
    known = inspect.signature(helper).parameters
    arguments: dict[str, Any] = {
        "group_size": world_size,
        "group_rank": rank,
        "global_ranks_in_group": [],
        "backend": dist.Backend(backend),
        "store": dist.PrefixStore("roll-weights", store),  # type: ignore[attr-defined]
        "group_name": f"roll-weights-{port}",
        "timeout": timeout,
    }
    group, _ = helper(**{name: value for name, value in arguments.items() if name in known})
    # As `new_group` does; torch's profiler asks every group for its ranks.
    distributed_c10d._world.pg_group_ranks[group] = {each: each for each in range(world_size)}
    return group


def broadcast(group: Any, tensor: torch.Tensor) -> None:
    """Send `tensor` from rank 0 to all others, or fill it there; returns when it is done."""
    options = distributed_c10d.BroadcastOptions()
    options.rootRank = 0
    options.rootTensor = 0
    group.broadcast([tensor], options).wait()


def meet(group: Any) -> None:
    """Return when every process of the group has come here."""
    group.allreduce([torch.zeros(1, dtype=torch.uint8)]).wait()
