"""The internal seam for weight updates: what a sender gives and what a receiver must confirm."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class WeightManifest:
    """What a sender is about to send: version, and name, dtype and shape of every tensor, bucket by bucket."""

    version: int
    buckets: tuple[tuple[tuple[str, str, tuple[int, ...]], ...], ...]

    @property
    def digest(self) -> str:
        """Digest of the version and of every name and shape, in order."""
        return digest_of(self.version, ((name, shape) for bucket in self.buckets for name, _dtype, shape in bucket))


def digest_of(version: int, tensors: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """A short digest of a version and the names and shapes that came with it, in the order they came."""
    hasher = hashlib.sha256(str(version).encode())
    for name, shape in tensors:
        hasher.update(f"|{name}:{'x'.join(map(str, shape))}".encode())
    return hasher.hexdigest()[:16]


class WeightSender(ABC):
    """The trainer's end; one instance per rank of the training role."""

    @abstractmethod
    def send(self, buckets: Iterator[list[tuple[str, torch.Tensor]]], manifest: WeightManifest) -> None:
        """Send every bucket, in order. Every rank calls it; only rank 0 need move bytes."""


class WeightReceiver(ABC):
    """An engine's end."""

    manifest: WeightManifest

    @abstractmethod
    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """Yield the buckets in order. A bucket's tensors are valid only until the next one is asked for."""
