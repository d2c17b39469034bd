"""Weights by collective broadcast: bucket by bucket, each as one flat buffer of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from roll_core.weights.base import WeightManifest, WeightReceiver, WeightSender
from roll_core.weights.group import broadcast
from roll_core.weights.packing import Bucket, as_announced, largest_bucket, pack, packed_bytes, unpack


class BroadcastSender(WeightSender):
    """Sends from rank 0 of the training role; the other ranks only take part in gathering the tensors.

    What is sent lies on `device`, by default where the tensors are.
    """

    def __init__(self, group: Any | None, device: torch.device | None = None) -> None:
        self.group, self.device = group, device

    def send(self, buckets: Iterator[Bucket], manifest: WeightManifest) -> None:
        """Send every bucket.

        Raises:
            WeightSyncError: the buckets differ from the manifest, which the engines were given beforehand.
        """
        for bucket, entries in zip(as_announced(buckets, manifest), (*manifest.buckets, ())):
            if self.group is not None:
                flat = torch.empty(packed_bytes(entries), dtype=torch.uint8, device=self.device or bucket[0][1].device)
                pack(bucket, flat)
                broadcast(self.group, flat)


class BroadcastReceiver(WeightReceiver):
    """Receives on an engine, into one buffer that is used again for every bucket."""

    def __init__(self, group: Any, manifest: WeightManifest, device: torch.device) -> None:
        self.group, self.manifest, self.device = group, manifest, device

    def receive(self) -> Iterator[Bucket]:
        """Yield the buckets; the tensors are views of a buffer that the next bucket overwrites."""
        buffer = torch.empty(largest_bucket(self.manifest), dtype=torch.uint8, device=self.device)
        for entries in self.manifest.buckets:
            flat = buffer[: packed_bytes(entries)]
            broadcast(self.group, flat)
            yield unpack(entries, flat)
