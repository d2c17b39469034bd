"""Weights through memory that the trainer and its engines on the same node share: two copies, and no socket.

For devices whose memory is the host's, and for devices that a trainer shares with an engine, as no collective has a
device twice. Two slots are used in turn: while engines read one bucket, the trainer packs the next.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from roll_core.weights.base import WeightManifest, WeightReceiver, WeightSender
from roll_core.weights.group import meet
from roll_core.weights.packing import Bucket, as_announced, pack, unpack

FOLDER = Path("/dev/shm")
SLOTS = 2
BUCKET_BYTES = 32 * 2**20
"""Buckets are no larger than this (a larger tensor has one of its own): little memory, and it stays warm."""


class SharedMemory:
    """`SLOTS` buffers in a file in memory. Unlinked once everyone has it open, it ends with the processes."""

    def __init__(self, path: Path, slot_bytes: int) -> None:
        self.path, self.slot_bytes = path, slot_bytes
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), SLOTS * slot_bytes)
        self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)

    @classmethod
    def create(cls, slot_bytes: int, folder: Path = FOLDER) -> SharedMemory:
        """Reserve the memory.

        Raises:
            OSError: there is no such folder, or no room in it.
        """
        descriptor, name = tempfile.mkstemp(prefix="roll-weights-", dir=folder)
        path = Path(name)
        try:
            # Writing into a file that only claims its size would end the process where there is no room.
            os.posix_fallocate(descriptor, 0, SLOTS * slot_bytes)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        return cls(path, slot_bytes)

    def slot(self, index: int) -> torch.Tensor:
        """The bytes that bucket `index` goes through."""
        start = (index % SLOTS) * self.slot_bytes
        return self._bytes[start : start + self.slot_bytes]


class SharedMemorySender(WeightSender):
    """Packs on rank 0 of the training role; the other ranks only take part in gathering the tensors."""

    def __init__(self, group: Any | None, memory: SharedMemory | None) -> None:
        self.group, self.memory = group, memory

    def send(self, buckets: Iterator[Bucket], manifest: WeightManifest) -> None:
        """Send every bucket.

        Raises:
            WeightSyncError: the buckets differ from the manifest, which the engines were given beforehand.
        """
        for index, bucket in enumerate(as_announced(buckets, manifest)):
            if self.memory is not None:
                pack(bucket, self.memory.slot(index))
                meet(self.group)


class SharedMemoryReceiver(WeightReceiver):
    """Reads on an engine."""

    def __init__(self, group: Any, memory: SharedMemory, manifest: WeightManifest) -> None:
        self.group, self.memory, self.manifest = group, memory, manifest

    def receive(self) -> Iterator[Bucket]:
        """Yield the buckets; the tensors are views of memory that the bucket after the next overwrites.

        Meeting for a bucket says that it is packed, and that everyone is done with the one before.
        """
        for index, entries in enumerate(self.manifest.buckets):
            meet(self.group)
            yield unpack(entries, self.memory.slot(index))
