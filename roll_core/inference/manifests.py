"""What a trainer announces beside what a model has, and what an engine says it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from roll_core.errors import WeightSyncError
from roll_core.training.model import under_checkpoint_names
from roll_core.weights import WeightManifest, WeightReceiver

NAMES_SHOWN = 8


def check_manifest(module: nn.Module, manifest: WeightManifest) -> None:
    """Compare what a trainer announces with what the model has. Buffers may be left out, parameters may not.

    Raises:
        WeightSyncError: lists unknown, missing, repeated and misshapen tensors.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in as_in_folder(module, module.state_dict()).items()}
    needed = set(as_in_folder(module, dict(module.named_parameters(remove_duplicate=False))))
    announced = [(name, tuple(shape)) for bucket in manifest.buckets for name, _dtype, shape in bucket]
    names = [name for name, _shape in announced]
    faults = {
        "unknown": sorted(set(names) - shapes.keys()),
        "missing": sorted(needed - set(names)),
        "sent twice": sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else [],
        "another shape": [
            f"{name} {shape} instead of {shapes[name]}" for name, shape in announced if shapes.get(name, shape) != shape
        ],
    }
    if any(faults.values()):
        lines = [f"\n  {kind}: {shown(found)}" for kind, found in faults.items() if found]
        raise WeightSyncError(f"the weights of version {manifest.version} are not those of this model{''.join(lines)}")


def as_in_folder(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of the model under the names that the model's folder has for them, and that a trainer sends.

    One that the folder has in several pieces keeps the name it has here.
    """
    named = {}
    for name, tensor in tensors.items():
        there = list(under_checkpoint_names(module, name, tensor))
        is_whole = len(there) == 1 and there[0][1].shape == tensor.shape
        named[there[0][0] if is_whole else name] = tensor
    return named


def drain(receiver: WeightReceiver) -> None:
    """Let a sender finish whose weights are refused: it waits for every receiver."""
    for _bucket in receiver.receive():
        pass


@dataclass(frozen=True)
class Taken:
    """What one rank of an engine says of an update: the digest of what came, and parameters that got nothing."""

    rank: str
    digest: str
    left_out: tuple[str, ...]

    def confirm(self, engine: str, manifest: WeightManifest) -> None:
        """Raise WeightSyncError unless everything announced came to this rank, and its `engine` used all of it."""
        if self.digest != manifest.digest:
            raise WeightSyncError(
                f"the weights of version {manifest.version} did not arrive as announced on {self.rank} of the engine"
                f"\n  announced: {manifest.digest}, arrived: {self.digest}"
            )
        if self.left_out:
            raise WeightSyncError(
                f"{engine} left parameters at their old values, though version {manifest.version} came whole"
                f"\n  on {self.rank}: {', '.join(self.left_out)}"
            )


def shown(names: Iterable[str]) -> str:
    """Names for a message, the first few of many."""
    listed = list(names)
    more = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"
