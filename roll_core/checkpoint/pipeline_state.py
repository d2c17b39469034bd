"""The driver's share of a checkpoint: the step, the positions of its samplers, and its random states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from roll_core.checkpoint.storage import storage_error
from roll_core.errors import CheckpointError

STATE_FILE = Path("pipeline") / "state.json"
RNG_FILE = Path("pipeline") / "rng" / "driver.pt"


@dataclass(frozen=True)
class PipelineState:
    """What the driver must know to go on after `step` finished steps. Every part is plain JSON data with text keys."""

    step: int
    sampler: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)


def save_pipeline_state(folder: Path, state: PipelineState) -> None:
    """Write the state, and the random states of this process, under `folder`/pipeline.

    Raises:
        TypeError: part of the state would not come back from JSON as it is; the message names it.
        CheckpointError: the disk is full or cannot be written.
    """
    content = asdict(state)
    text = json.dumps(content, indent=1, default=_refuse)
    changed = _first_difference(content, json.loads(text), "state")
    if changed:
        raise TypeError(f"{changed} would not come back from JSON unchanged; keep text keys and lists in it")
    random_states = _rng_bytes()
    for path, data in ((folder / STATE_FILE, text.encode()), (folder / RNG_FILE, random_states)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise storage_error(f"save the state after step {state.step}", path, error) from error


def load_pipeline_state(folder: Path, *, restore_rng: bool = True) -> PipelineState:
    """Read what `save_pipeline_state` wrote, and put the random states of this process back.

    Raises:
        CheckpointError: a file is missing or cannot be read.
    """
    path = folder / STATE_FILE
    known = {entry.name for entry in fields(PipelineState)}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        state = PipelineState(**{name: value for name, value in content.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the state of the pipeline in {path} cannot be read: {error}") from error
    if restore_rng:
        _restore_rng(folder / RNG_FILE)
    return state


def _rng_bytes() -> bytes:
    """Random states of Python, numpy and torch (host only, so that checkpoints move between kinds of device)."""
    import io
    import random

    import numpy as np
    import torch

    kind, keys, position, has_gauss, cached_gaussian = np.random.get_state(legacy=True)
    states = {
        "python": random.getstate(),
        # As a tensor, not an array: torch.load then needs no pickled classes.
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached_gaussian),
        "torch": torch.get_rng_state(),
    }
    # Through memory: torch reports a full disk as an error of its own file format.
    buffer = io.BytesIO()
    torch.save(states, buffer)
    return buffer.getvalue()


def _restore_rng(path: Path) -> None:
    import pickle
    import random

    import numpy as np
    import torch

    try:
        states = torch.load(path, weights_only=True, map_location="cpu")
        version, internal, gauss_next = states["python"]
        kind, keys, *rest = states["numpy"]
        random.setstate((version, tuple(internal), gauss_next))
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        torch.set_rng_state(states["torch"])
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"the random states in {path} cannot be restored: {error}") from error


def _refuse(value: object) -> Any:
    raise TypeError(f"the state of the pipeline holds a {type(value).__name__}, which JSON cannot hold: {value!r:.80}")


def _first_difference(given: Any, returned: Any, path: str) -> str:
    """Dotted path of the first part that JSON changed (a number as key becomes text); empty where nothing did."""
    if isinstance(given, Mapping):
        if set(given) != set(returned):
            return path
        parts = [(f"{path}.{key}", given[key], returned[key]) for key in given]
    elif isinstance(given, list | tuple):
        parts = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(given, returned))]
    else:
        return ""
    for name, inner_given, inner_returned in parts:
        found = _first_difference(inner_given, inner_returned, name)
        if found:
            return found
    return ""
