"""A bucket of tensors as one flat buffer of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from roll_core.errors import WeightSyncError
from roll_core.weights.base import WeightManifest

ALIGNMENT = 16
"""Tensors start at multiples of this many bytes, so that a slice of the buffer can be viewed as any dtype."""

Entry = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a tensor."""
Bucket = list[tuple[str, torch.Tensor]]


def describe(buckets: Iterable[Bucket], version: int) -> WeightManifest:
    """The manifest of what `TrainStrategy.weights` yields."""
    return WeightManifest(version, tuple(_entries(bucket) for bucket in buckets))


def as_announced(buckets: Iterable[Bucket], manifest: WeightManifest) -> Iterator[Bucket]:
    """The same buckets, each compared with what the engines were told beforehand.

    Raises:
        WeightSyncError: the buckets differ from the manifest, or there are fewer or more of them.
    """
    planned = iter(manifest.buckets)
    for bucket in buckets:
        entries, expected = _entries(bucket), next(planned, ())
        if entries != expected:
            raise WeightSyncError(_difference(entries, expected))
        yield bucket
    if next(planned, None) is not None:
        raise WeightSyncError("the trainer has fewer weights than it announced")


def packed_bytes(entries: Sequence[Entry]) -> int:
    """Bytes that a bucket takes when packed."""
    return sum(_aligned(_num_bytes(dtype, shape)) for _name, dtype, shape in entries)


def largest_bucket(manifest: WeightManifest) -> int:
    """Bytes of the largest packed bucket."""
    return max((packed_bytes(bucket) for bucket in manifest.buckets), default=0)


def pack(bucket: Bucket, flat: torch.Tensor) -> None:
    """Copy a bucket into the beginning of a buffer of bytes."""
    for (start, (_name, dtype, shape)), (_same, tensor) in zip(_layout(_entries(bucket)), bucket):
        _view(flat, start, dtype, shape).copy_(tensor.detach())


def unpack(entries: Sequence[Entry], flat: torch.Tensor) -> Bucket:
    """A packed bucket's tensors, as views of the buffer."""
    return [(name, _view(flat, start, dtype, shape)) for start, (name, dtype, shape) in _layout(entries)]


def _entries(bucket: Bucket) -> tuple[Entry, ...]:
    return tuple((name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in bucket)


def _num_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    item: torch.dtype = getattr(torch, dtype)
    return math.prod(shape) * item.itemsize


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def _layout(entries: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
    start = 0
    for entry in entries:
        yield start, entry
        start += _aligned(_num_bytes(entry[1], entry[2]))


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
