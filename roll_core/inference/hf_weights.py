"""Taking a trainer's weights into a transformers model, in place."""

from __future__ import annotations

import torch
from torch import nn

from roll_core.errors import WeightSyncError
from roll_core.inference.manifests import as_in_folder, shown
from roll_core.weights import WeightReceiver, digest_of


def take(module: nn.Module, receiver: WeightReceiver) -> str:
    """Copy every tensor that arrives into the model; the digest of what was taken.

    Tensors of another precision are converted. Names that are tied in the model share memory here: each must
    bring the same numbers.

    Raises:
        WeightSyncError: what arrived is not what was announced; the model holds a mixture and must not be used.
    """
    manifest = receiver.manifest
    state = as_in_folder(module, module.state_dict())
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
            f"\n  missing: {shown(sorted(lost))}\n  announced: {manifest.digest}, arrived: {digest}"
        )
    return digest
