"""Keeping engines at the trainer's weights, with a proof that they are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import WeightSyncError, WorkerDied
from roll_core.weights import WeightManifest
from roll_core.weights.packing import largest_bucket
from roll_core.weights.shared_memory import BUCKET_BYTES

log = logging.getLogger(__name__)


class WeightUpdate:
    """Sends the trainer's weights to every engine and checks what each of them confirms."""

    def __init__(self, trainer: WorkerGroup, engines: WorkerGroup, waiter: Waiter, bucket_bytes: int) -> None:
        self.trainer, self.engines, self.waiter, self.bucket_bytes = trainer, engines, waiter, bucket_bytes
        self.version = -1
        self._manifest: WeightManifest | None = None

    def connect(self) -> None:
        """Form the group of rank 0 and all engines, and ask the trainer what it will send.

        Weights travel between devices where each process has its own, else by way of the host's memory.
        """
        facts = self.waiter.wait([self.trainer.submit_to(0, "facts"), *self.engines.submit("facts")])
        # A group's ranks are devices: a device that trainer and engine share cannot be two of them.
        through_host = shares_devices([fact.devices for fact in facts])
        is_one_node = len({fact.node for fact in facts}) == 1
        is_shared = is_one_node and (through_host or not any(fact.devices for fact in facts))
        if is_shared:
            self.bucket_bytes = min(self.bucket_bytes, BUCKET_BYTES)
        size = 1 + len(self.engines)
        address, port = facts[0].address, facts[0].port
        joins = [self.trainer.submit_to(0, "join_weight_group", address, port, size, through_host)]
        joins += [
            self.engines.submit_to(rank, "join_weight_group", address, port, 1 + rank, size, through_host)
            for rank in range(len(self.engines))
        ]
        describe = self.trainer.submit("describe_weights", self.bucket_bytes)
        manifest: WeightManifest = self.waiter.wait([*joins, *describe])[len(joins)]
        if is_shared:
            self._share(largest_bucket(manifest))
        self._manifest = manifest

    def _find_lost(self) -> set[int]:
        """Ask every engine for a sign of life: an update that waits for a dead one cannot be taken back."""
        for call in self.engines.submit("facts"):
            try:
                self.waiter.wait([call])
            except WorkerDied:
                self.engines.lost.add(call.worker.context.rank)
        return self.engines.find_lost()

    def _replace_lost(self) -> None:
        """Start dead engines again and form a new group with them: the old one ended with its first member."""
        for rank in self.engines.revive():
            log.warning("%s rank %d died and is started again", self.engines.role, rank)
            self.waiter.wait([self.engines.submit_to(rank, "start")])
        self._manifest = None

    def _share(self, slot_bytes: int) -> None:
        """All live on one node, in its memory: let weights go through it rather than through sockets."""
        [(path, reason)] = self.waiter.wait([self.trainer.submit_to(0, "share_weights", slot_bytes)])
        if path is None:
            log.warning("weights are broadcast through sockets, as no memory could be shared: %s", reason)
            return
        self.waiter.wait(self.engines.submit("open_shared_weights", path, slot_bytes))
        self.waiter.wait([self.trainer.submit_to(0, "hide_shared_weights")])

    def send(self, version: int) -> bool:
        """Bring every engine to `version`; returns False where they have it already.

        Engines that died since the last update are started again first; one that dies during an update ends the run.

        Raises:
            WeightSyncError: an engine confirmed something other than what was sent; names the engine.
            WorkerDied: the trainer or an engine died now, or engines died too often.
        """
        if version == self.version:
            return False
        if len(self.engines) > 1 and self._find_lost():
            self._replace_lost()
        if self._manifest is None:
            self.connect()
            assert self._manifest is not None
        manifest = replace(self._manifest, version=version)
        sends = self.trainer.submit("send_weights", manifest, self.bucket_bytes)
        takes = self.engines.submit("update_weights", manifest)
        digests = self.waiter.wait([*takes, *sends])[: len(takes)]
        for rank, digest in enumerate(digests):
            if digest != manifest.digest:
                raise WeightSyncError(
                    f"{self.engines.role} rank {rank} did not take the weights of version {version}"
                    f"\n  sent: {manifest.digest}\n  confirmed: {digest}"
                )
        self.version = version
        return True


def shares_devices(devices_of_workers: Sequence[Sequence[str]]) -> bool:
    """Whether a device belongs to two workers. Devices that are only processes have no names and are not shared."""
    names = [name for names in devices_of_workers for name in names]
    return len(set(names)) < len(names)
