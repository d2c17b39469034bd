"""A trainer's state on disk: what a run needs to go on exactly, and the same weights as a model folder.

<path>/dcp/              torch's distributed checkpoint: weights and optimiser state, each rank's part
<path>/dcp/trainer.json  schedule and facts about the run
<path>/dcp/rng-<rank>.pt random state of each rank
<path>/                  config.json, model.safetensors, the tokenizer's files
"""

from __future__ import annotations

import json
import logging
import random
from collections import defaultdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from roll_core.errors import CheckpointError
from roll_core.platforms.base import Platform
from roll_core.training.optim import Optimizer
from roll_core.training.process_group import gather
from roll_core.training.sharded_model import ShardedModel

logger = logging.getLogger(__name__)
FORMAT = 1


def save(path: Path, model: ShardedModel, optimizer: Optimizer | None, platform: Platform) -> None:
    """Write <path>/dcp; every rank takes part, and all of it is on disk when any returns."""
    folder = path / "dcp"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(_random_state(platform), folder / f"rng-{dist.get_rank()}.pt")
    if dist.get_rank() == 0:
        facts = {"format": FORMAT, "schedule": optimizer.schedule.state_dict() if optimizer else None}
        (folder / "trainer.json").write_text(json.dumps(facts), encoding="utf-8")
    state_dict_saver.save(tensors(model, optimizer), checkpoint_id=folder)
    dist.barrier()


def load(path: Path, model: ShardedModel, optimizer: Optimizer | None, platform: Platform) -> None:
    """Restore what `save` wrote; nothing is changed unless everything fits.

    Raises:
        CheckpointError: a file is missing or cut short, or a tensor is missing, of another shape or another dtype.
    """
    folder = path / "dcp"
    wanted = tensors(model, optimizer)
    problem: CheckpointError | None = None
    try:
        facts = _facts(folder)
        if optimizer is not None and facts["schedule"] is None:
            raise CheckpointError(
                f"{folder} was saved by a role without an optimiser; it holds nothing to train on from"
            )
        check(folder, wanted)
        random_state = _read_random_state(folder)
    except CheckpointError as error:
        problem = error
    # A rank that finds a file of its own damaged must not leave the others waiting for it.
    for text in gather("" if problem is None else str(problem)):
        if text:
            raise problem or CheckpointError(text)
    try:
        state_dict_loader.load(wanted, checkpoint_id=folder)
    except CheckpointException as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    if optimizer is not None:
        _restore_schedule(optimizer, facts["schedule"])
    if random_state is not None:
        _restore_random_state(random_state, folder, platform)


def tensors(model: ShardedModel, optimizer: Optimizer | None) -> dict[str, torch.Tensor]:
    """Everything that is saved as a tensor, this rank's part of each; tied weights once."""
    model.reshard()
    names = {parameter: name for name, parameter in model.module.named_parameters()}
    aliases = {name for name, _ in model.module.named_parameters(remove_duplicate=False)} - set(names.values())
    state = {f"model.{name}": tensor for name, tensor in model.tensors().items() if name not in aliases}
    if optimizer is not None:
        for parameter in optimizer.parameters:
            for key, value in optimizer.adam.state[parameter].items():
                state[f"optimizer.{names[parameter]}.{key}"] = value
    return state


def check(folder: Path, wanted: dict[str, torch.Tensor]) -> None:
    """Compare a checkpoint's own list with what is wanted and with the files that are there.

    Raises:
        CheckpointError: naming the file or tensor.
    """
    listing = _listing(folder)
    ends: dict[str, int] = defaultdict(int)
    for part in (listing.storage_data or {}).values():
        ends[part.relative_path] = max(ends[part.relative_path], part.offset + part.length)
    for name, end in sorted(ends.items()):
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size is None or size < end:
            found = "missing" if size is None else f"cut short: {size} of at least {end} bytes"
            raise CheckpointError(f"{folder / name} is {found}; resume from another checkpoint")
    for name, tensor in wanted.items():
        known = listing.state_dict_metadata.get(name)
        if not isinstance(known, TensorStorageMetadata):
            raise CheckpointError(f"{folder} has no '{name}', which this role needs; was it saved for another model?")
        saved = (tuple(known.size), known.properties.dtype)
        if saved != (tuple(tensor.shape), tensor.dtype):
            raise CheckpointError(
                f"'{name}' in {folder} is {list(saved[0])} {saved[1]}, and this role's is "
                f"{list(tensor.shape)} {tensor.dtype}; use the model and precision it was saved with"
            )


def _listing(folder: Path) -> Metadata:
    if not (folder / ".metadata").is_file():
        raise CheckpointError(f"{folder} has no .metadata: it was never finished, or is no checkpoint to train on from")
    try:
        return FileSystemReader(folder).read_metadata()
    except (EOFError, ValueError, AttributeError, ImportError, IndexError, KeyError, UnpicklingError) as error:
        raise CheckpointError(f"{folder / '.metadata'} cannot be read: {error}") from error


def _facts(folder: Path) -> dict[str, Any]:
    file = folder / "trainer.json"
    try:
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing; there is nothing to resume from in {folder.parent}") from error
    except ValueError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if facts.get("format") != FORMAT:
        raise CheckpointError(f"{file} has format {facts.get('format')}, and this version reads format {FORMAT}")
    return facts


def _restore_schedule(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    configured = list(optimizer.schedule.base_lrs)
    if configured != saved["base_lrs"]:
        logger.warning("the checkpoint's learning rate %s goes on, not %s", saved["base_lrs"], configured)
    optimizer.schedule.load_state_dict(saved)
    for group, lr in zip(optimizer.adam.param_groups, saved["_last_lr"], strict=True):
        group["lr"] = lr


def _random_state(platform: Platform) -> dict[str, Any]:
    kind, keys, *numbers = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *numbers],
        "torch": torch.get_rng_state(),
        "device_type": platform.device_type,
        "device": None if platform.device_type == "cpu" else platform.torch.get_rng_state(),
    }


def _read_random_state(folder: Path) -> dict[str, Any] | None:
    file = folder / f"rng-{dist.get_rank()}.pt"
    if not file.is_file():
        logger.warning(
            "%s was saved by fewer ranks: rank %d goes on with a fresh random state", folder, dist.get_rank()
        )
        return None
    try:
        state: dict[str, Any] = torch.load(file, weights_only=True)
    except (RuntimeError, EOFError, ValueError, UnpicklingError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    return state


def _restore_random_state(state: dict[str, Any], folder: Path, platform: Platform) -> None:
    random.setstate(state["python"])
    kind, keys, *numbers = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *numbers))
    torch.set_rng_state(state["torch"])
    if state["device_type"] != platform.device_type:
        shown = (folder, state["device_type"], platform.device_type)
        logger.warning("%s was saved on '%s': random numbers of '%s' start afresh", *shown)
    elif state["device"] is not None:
        platform.torch.set_rng_state(state["device"])
