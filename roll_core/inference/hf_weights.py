"""Taking a trainer's weights into a transformers model, in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from roll_core.errors import WeightSyncError
from roll_core.weights import WeightManifest, WeightReceiver, digest_of

NAMES_SHOWN = 8


def check_manifest(module: nn.Module, manifest: WeightManifest) -> None:
    """Compare what a trainer announces with what the model has. Buffers may be left out, parameters may not.

    Raises:
        WeightSyncError: lists unknown, missing, repeated and misshapen tensors.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    needed = {name for name, _parameter in module.named_parameters(remove_duplicate=False)}
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
        lines = [f"\n  {kind}: {_shown(found)}" for kind, found in faults.items() if found]
        raise WeightSyncError(f"the weights of version {manifest.version} are not those of this model{''.join(lines)}")


def take(module: nn.Module, receiver: WeightReceiver) -> str:
    """Copy every tensor that arrives into the model; the digest of what was taken.

    Tensors of another precision are converted. Names that are tied in the model share memory here: each must
    bring the same numbers.

    Raises:
        WeightSyncError: what arrived is not what was announced; the model holds a mixture and must not be used.
    """
    manifest = receiver.manifest
    state: Mapping[str, torch.Tensor] = module.state_dict()
    taken: list[tuple[str, tuple[int, ...]]] = []
    owner_of: dict[tuple[int, tuple[int, ...]], str] = {}
    with torch.no_grad():
        for bucket in receiver.receive():
            for name, tensor in bucket:
                target = state.get(name)
                if target is None or target.shape != tensor.shape:
                    raise WeightSyncError(
                        f"tensor '{name}' of shape {tuple(tensor.shape)} came without being announced"
                    )
                first = owner_of.setdefault((target.data_ptr(), tuple(target.shape)), name)
                if first == name:
                    target.copy_(tensor)
                elif not torch.equal(target, tensor.to(target.device, target.dtype)):
                    raise WeightSyncError(
                        f"'{name}' and '{first}' are tied in this model, and the trainer sent different numbers"
                    )
                taken.append((name, tuple(tensor.shape)))
    digest = digest_of(manifest.version, taken)
    if digest != manifest.digest:
        lost = {name for bucket in manifest.buckets for name, _dtype, _shape in bucket} - {name for name, _ in taken}
        raise WeightSyncError(
            f"the weights of version {manifest.version} did not arrive as announced"
            f"\n  missing: {_shown(sorted(lost))}\n  announced: {manifest.digest}, arrived: {digest}"
        )
    return digest


def drain(receiver: WeightReceiver) -> None:
    """Let a sender finish whose weights are refused: it waits for every receiver."""
    for _bucket in receiver.receive():
        pass


def _shown(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "") or "none"
