"""What every kind of worker process has. Workers are plain classes: `WorkerGroup` makes Ray actors of them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roll_core.cluster.process import free_port, prepare
from roll_core.cluster.spec import WorkerSpec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ProcessFacts:
    """Where a worker runs.

    Args:
        address: its node's, as other nodes reach it.
        port: one that is free there.
        devices: a name for each, which is the same for all processes that see the device; none for plain processors.
    """

    pid: int
    node: str
    address: str
    port: int
    devices: tuple[str, ...] = ()


class Worker:
    """What all workers have: a name in Ray's messages, facts about the process, and a call that never ends."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.platform = prepare(spec)

    def __repr__(self) -> str:
        return self.spec.name

    def facts(self) -> ProcessFacts:
        """Where this process is, and what it sees."""
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        indices = range(self.platform.device_count()) if self.platform.device_type != "cpu" else ()
        return ProcessFacts(
            pid=os.getpid(),
            node=node,
            address=ray.util.get_node_ip_address(),
            port=free_port(),
            devices=tuple(f"{node}/{self.platform.device_uid(index)}" for index in indices),
        )

    def watch(self) -> None:
        """Never return: whoever waits for this learns at once when the process ends."""
        threading.Event().wait()


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def enter_weight_group(
    worker: Worker, address: str, port: int, rank: int, world_size: int, through_host: bool
) -> tuple[Any, torch.device]:
    """Join the group that weights are sent in: the group, and the device that what is sent lies on."""
    import torch

    from roll_core.weights.group import join_group

    platform = worker.platform
    group = join_group(
        address=address,
        port=port,
        rank=rank,
        world_size=world_size,
        backend="gloo" if through_host else platform.collective_backend,
        timeout_s=worker.spec.context.timeout_s,
    )
    return group, torch.device("cpu") if through_host else platform.device(0)
