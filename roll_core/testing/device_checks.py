"""What several processes, each with a device of its own, do for the contract of platforms."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from roll_core.platforms import Platform

TIMEOUT_S = 180


def run_ranks(platform_class: type[Platform], num_ranks: int) -> list[dict[str, Any]]:
    """What each rank found; every rank sees one device, as a worker of a run does.

    Raises:
        AssertionError: a rank failed, with the end of what it printed, or did not end in time.
    """
    platform = platform_class()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ids = platform.visible_ids() or [str(index) for index in range(num_ranks)]
        processes = []
        for rank in range(num_ranks):
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            environ |= platform.worker_env("actor_train") | platform.visible([ids[rank % len(ids)]])
            target = f"{platform_class.__module__}:{platform_class.__qualname__}"
            command = [sys.executable, "-m", __name__, target, str(rank), str(num_ranks), str(port), folder]
            output = (Path(folder) / f"output-{rank}").open("w")
            processes.append(subprocess.Popen(command, env=environ, stdout=output, stderr=subprocess.STDOUT))
        return [_result(process, rank, Path(folder)) for rank, process in enumerate(processes)]


def _result(process: subprocess.Popen[bytes], rank: int, folder: Path) -> dict[str, Any]:
    try:
        code = process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"rank {rank} did not end within {TIMEOUT_S} s") from None
    if code:
        shown = "\n  ".join((folder / f"output-{rank}").read_text(errors="replace").strip().splitlines()[-4:])
        raise AssertionError(f"rank {rank} failed:\n  {shown}")
    found: dict[str, Any] = json.loads((folder / f"result-{rank}").read_text())
    return found


def shares_memory(platform: Platform) -> bool:
    """Whether what another process writes to a tensor on the device is seen here; the platform has been set up."""
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    tensors, is_done = context.Queue(), context.Event()
    values = torch.ones(1024, device=platform.device(0))
    worker = context.Process(target=_double, args=(type(platform), tensors, is_done))
    worker.start()
    tensors.put(values)
    in_time = is_done.wait(TIMEOUT_S)
    if not in_time:
        worker.kill()
    worker.join()
    return in_time and float(values.sum()) == 2048.0


def _double(platform_class: type[Platform], tensors: Any, is_done: Any) -> None:
    platform = platform_class()
    platform.setup()
    values = tensors.get(timeout=TIMEOUT_S)
    values.mul_(2)
    if platform.device_type != "cpu":
        platform.torch.synchronize()
    is_done.set()


def main(target: str, rank: int, num_ranks: int, port: int, folder: Path) -> None:
    """One rank: join, try the collectives, and take a step of a sharded model."""
    import importlib

    import torch
    import torch.distributed as dist

    from roll_core.context import WorkerContext
    from roll_core.training.process_group import join

    module, _, name = target.partition(":")
    platform: Platform = getattr(importlib.import_module(module), name)()
    platform.setup()
    join(platform, WorkerContext("contract", rank, num_ranks, master_port=port, timeout_s=120.0))
    device = platform.device(0)
    total, sent = torch.tensor(float(rank + 1), device=device), torch.tensor(7.0 if rank == 0 else 0.0, device=device)
    parts = [torch.zeros((), device=device) for _ in range(num_ranks)]
    dist.all_reduce(total)
    dist.broadcast(sent, src=0)
    dist.all_gather(parts, torch.tensor(float(rank), device=device))
    # The group's own answer for this kind of device, which is what collectives on its tensors use.
    backend = dist.group.WORLD._get_backend(device).name()  # type: ignore[union-attr]
    found = {
        "backend": backend,
        "sum": total.item(),
        "sent": sent.item(),
        "gathered": [part.item() for part in parts],
        "difference": _sharded_step(platform, num_ranks),
    }
    (folder / f"result-{rank}").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _sharded_step(platform: Platform, num_ranks: int) -> float:
    """Largest difference of weights after one step, between a model that is sharded and one that is not."""
    import copy

    import torch
    from torch.distributed.fsdp import fully_shard

    from roll_core.training.process_group import mesh

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(platform.device(0))
    sharded, rows = copy.deepcopy(plain), torch.randn(6, 8).to(platform.device(0))
    fully_shard(sharded, mesh=mesh(platform, num_ranks, 0))
    for model in (plain, sharded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model(rows).square().mean().backward()
        optimizer.step()
    whole = [parameter.full_tensor() for parameter in sharded.parameters()]  # type: ignore[attr-defined]
    pairs = zip(plain.parameters(), whole)
    return max(float((left - right).abs().max()) for left, right in pairs)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
