"""The worker process of a rank that trains or scores."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.cluster.process import load_target
from roll_core.cluster.worker import Worker, enter_weight_group

if TYPE_CHECKING:
    import torch

    from roll_core.data import DataProto
    from roll_core.data.remote_batch import BatchReader, RowRemoteBatch
    from roll_core.training import TokenLoss, TrainPlan
    from roll_core.transport import Transport
    from roll_core.weights import WeightManifest, WeightSender
    from roll_core.weights.shared_memory import SharedMemory

CACHE_BYTES = 256 * 2**20
"""Rows that a trainer keeps of what it read: scores, and every epoch, read the same prompts and responses."""


class TrainWorker(Worker):
    """One rank of a role that trains or scores."""

    def setup(self, master_addr: str, master_port: int, plan: TrainPlan | None) -> None:
        """Make the strategy and let it join its peers and load the model."""
        context = replace(self.spec.context, master_addr=master_addr, master_port=master_port)
        self.strategy = load_target(self.spec.strategy_target)(self.spec.role, self.platform, context)
        self.strategy.setup(plan)
        self.weight_group: Any = None
        self.weight_device: torch.device | None = None
        self.weight_memory: SharedMemory | None = None
        self.reader: BatchReader | None = None

    def attach(self, transport: Transport) -> None:
        """From now on, batches may be references to rows in this transport."""
        from roll_core.data.remote_batch import BatchReader

        self.reader = BatchReader(transport, CACHE_BYTES)

    def train_step(self, batch: DataProto | RowRemoteBatch, loss: TokenLoss) -> tuple[dict[str, float], float]:
        """One optimiser step; the metrics, and the seconds it took here."""
        start = time.perf_counter()
        metrics: dict[str, float] = self.strategy.train_step(self._read(batch), loss)
        return metrics, time.perf_counter() - start

    def log_probs(self, batch: DataProto | RowRemoteBatch, temperature: float, entropy: bool) -> DataProto:
        """Log-probs of this rank's rows."""
        scored: DataProto = self.strategy.log_probs(self._read(batch), temperature=temperature, entropy=entropy)
        return scored

    def values(self, batch: DataProto | RowRemoteBatch) -> DataProto:
        """A critic's values of this rank's rows."""
        valued: DataProto = self.strategy.values(self._read(batch))
        return valued

    def put_scores(
        self, batch: RowRemoteBatch, partition: str, column: str, method: str, *arguments: Any
    ) -> RowRemoteBatch:
        """What `log_probs` or `values` returns, put as a further column of the rows, and a reference to it."""
        from roll_core.data import DataProto
        from roll_core.data.remote_batch import put_batch

        scored: DataProto = getattr(self, method)(batch, *arguments)
        assert self.reader is not None, "references are sent to workers that have a transport"
        renamed = DataProto({column: scored[method]})
        return put_batch(self.reader.transport, renamed, partition=partition, like=batch)

    def _read(self, batch: DataProto | RowRemoteBatch) -> DataProto:
        from roll_core.data.padding import padded
        from roll_core.data.remote_batch import RowRemoteBatch

        if not isinstance(batch, RowRemoteBatch):
            return batch
        assert self.reader is not None, "references are sent to workers that have a transport"
        return padded(self.reader.materialize(batch))

    def describe_weights(self, bucket_bytes: int) -> WeightManifest | None:
        """The manifest of version 0, from rank 0; the other ranks take part in gathering."""
        from roll_core.weights.packing import describe

        manifest = describe(self.strategy.weights(bucket_bytes), version=0)
        return manifest if self.spec.context.rank == 0 else None

    def join_weight_group(self, address: str, port: int, world_size: int, through_host: bool) -> None:
        """Rank 0 opens the group that the engines join."""
        self.weight_group, self.weight_device = enter_weight_group(self, address, port, 0, world_size, through_host)

    def share_weights(self, slot_bytes: int) -> tuple[Path | None, str]:
        """Rank 0 reserves memory for engines on its node: where it is, or None and the reason."""
        from roll_core.weights.shared_memory import SharedMemory

        try:
            self.weight_memory = SharedMemory.create(slot_bytes)
        except OSError as error:
            return None, str(error)
        return self.weight_memory.path, ""

    def hide_shared_weights(self) -> None:
        """Every engine has the memory open: from here on it ends with the processes, however they end."""
        assert self.weight_memory is not None
        self.weight_memory.path.unlink()

    def send_weights(self, manifest: WeightManifest, bucket_bytes: int) -> None:
        """Send the weights as they are now. An engine's death is an error only after all ranks have done gathering."""
        from roll_core.weights.broadcast import BroadcastSender
        from roll_core.weights.shared_memory import SharedMemorySender

        sender: WeightSender = BroadcastSender(self.weight_group, self.weight_device)
        if self.weight_memory is not None:
            sender = SharedMemorySender(self.weight_group, self.weight_memory)
        buckets = self.strategy.weights(bucket_bytes)
        try:
            sender.send(buckets, manifest)
        finally:
            # The other ranks do not know of the engine: left alone in a collective, they could not even save.
            for _bucket in buckets:
                pass

    def offload(self) -> None:
        """Free the device for a colocated engine."""
        self.strategy.offload()

    def reload(self) -> None:
        """Undo `offload`."""
        self.strategy.reload()

    def save(self, path: Path) -> None:
        """Write this rank's part of a checkpoint."""
        self.strategy.save(path)

    def load(self, path: Path) -> None:
        """Restore this rank's part of a checkpoint."""
        self.strategy.load(path)

    def close(self) -> None:
        """Leave the process group."""
        self.strategy.close()
