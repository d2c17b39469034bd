"""Runs in each of SGLang's ranks: loads tensors into the model, and says what came and what it filled.

SGLang's models pass over names they do not know, and its own answer to an update says only that no error came up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

REPORT = "roll/report"
"""The name of a tensor that is none: its bytes are a folder, where the rank writes its report."""


def load(model: Any, named_tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Load some tensors of an update, or end the update with a report."""
    loading = vars(model).setdefault("_roll_loading", _Loading())
    if named_tensors and named_tensors[0][0] == REPORT:
        del vars(model)["_roll_loading"]
        loading.report(model, Path(os.fsdecode(bytes(named_tensors[0][1].tolist()))))
        return
    loading.taken += [(name, tuple(tensor.shape)) for name, tensor in named_tensors]
    with _Written(loading.written):
        model.load_weights(named_tensors)


class _Loading:
    """One update of one rank."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, tuple[int, ...]]] = []
        self.written: set[int] = set()

    def report(self, model: nn.Module, folder: Path) -> None:
        left_out = [name for name, value in model.named_parameters() if _place(value) not in self.written]
        said = json.dumps({"taken": self.taken, "left_out": sorted(left_out)})
        (folder / f"{os.getpid()}-{id(model)}.json").write_text(said, encoding="utf-8")


class _Written(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory that operations write into."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value, about in zip(args, func._schema.arguments):
            if about.alias_info is not None and about.alias_info.is_write and isinstance(value, torch.Tensor):
                self.places.add(_place(value))
        return func(*args, **(kwargs or {}))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
