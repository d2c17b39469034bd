"""Weights by collective broadcast: bucket by bucket, each as one flat buffer of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from roll_core.errors import WeightSyncError
from roll_core.weights.base import WeightManifest, WeightReceiver, WeightSender
from roll_core.weights.group import broadcast

ALIGNMENT = 16
"""Tensors start at multiples of this many bytes, so that a slice of the buffer can be viewed as any dtype."""

Entry = tuple[str, str, tuple[int, ...]]


def describe(buckets: Iterator[list[tuple[str, torch.Tensor]]], version: int) -> WeightManifest:
    """The manifest of what `TrainStrategy.weights` yields."""
    return WeightManifest(
        version,
        tuple(tuple((name, _dtype_name(t), tuple(t.shape)) for name, t in bucket) for bucket in buckets),
    )


class BroadcastSender(WeightSender):
    """Sends from rank 0 of the training role; the other ranks only take part in gathering the tensors."""

    def __init__(self, group: Any | None) -> None:
        self.group = group

    def send(self, buckets: Iterator[list[tuple[str, torch.Tensor]]], manifest: WeightManifest) -> None:
        """Send every bucket.

        Raises:
            WeightSyncError: the buckets differ from the manifest, which the engines were given beforehand.
        """
        planned = iter(manifest.buckets)
        for bucket in buckets:
            entries = tuple((name, _dtype_name(t), tuple(t.shape)) for name, t in bucket)
            expected = next(planned, ())
            if entries != expected:
                raise WeightSyncError(_difference(entries, expected))
            if self.group is not None:
                broadcast(self.group, _pack(entries, [t for _name, t in bucket]))
        if next(planned, None) is not None:
            raise WeightSyncError("the trainer has fewer weights than it announced")


class BroadcastReceiver(WeightReceiver):
    """Receives on an engine, into one buffer that is used again for every bucket."""

    def __init__(self, group: Any, manifest: WeightManifest, device: torch.device) -> None:
        self.group, self.manifest, self.device = group, manifest, device

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """Yield the buckets; the tensors are views of a buffer that the next bucket overwrites."""
        largest = max((_packed_bytes(bucket) for bucket in self.manifest.buckets), default=0)
        buffer = torch.empty(largest, dtype=torch.uint8, device=self.device)
        for bucket in self.manifest.buckets:
            flat = buffer[: _packed_bytes(bucket)]
            broadcast(self.group, flat)
            yield [(name, _view(flat, start, dtype, shape)) for start, (name, dtype, shape) in _layout(bucket)]


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _num_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    item: torch.dtype = getattr(torch, dtype)
    return math.prod(shape) * item.itemsize


def _layout(bucket: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
    start = 0
    for entry in bucket:
        yield start, entry
        start += -(-_num_bytes(entry[1], entry[2]) // ALIGNMENT) * ALIGNMENT


def _packed_bytes(bucket: Sequence[Entry]) -> int:
    return sum(-(-_num_bytes(dtype, shape) // ALIGNMENT) * ALIGNMENT for _name, dtype, shape in bucket)


def _pack(entries: Sequence[Entry], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    flat = torch.empty(_packed_bytes(entries), dtype=torch.uint8, device=tensors[0].device)
    for (start, (_name, dtype, shape)), tensor in zip(_layout(entries), tensors):
        _view(flat, start, dtype, shape).copy_(tensor.detach())
    return flat


def _view(flat: torch.Tensor, start: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    stop = start + _num_bytes(dtype, shape)
    return flat[start:stop].view(getattr(torch, dtype)).reshape(shape)


def _difference(entries: Sequence[Entry], expected: Sequence[Entry]) -> str:
    missing = [name for name, _dtype, _shape in expected if name not in {entry[0] for entry in entries}]
    extra = [name for name, _dtype, _shape in entries if name not in {entry[0] for entry in expected}]
    changed = [f"{got} instead of {want}" for got, want in zip(entries, expected) if got[0] == want[0] and got != want]
    return (
        "the trainer's weights are not those it announced"
        f"\n  missing: {', '.join(missing) or 'none'}\n  extra: {', '.join(extra) or 'none'}"
        f"\n  changed: {', '.join(changed) or 'none'}"
    )
