"""Calls for another vendor's device that would do nothing, quietly, are made to fail.

A torch without CUDA raises for many of its calls. These it ignores, or answers with 0, and code that was written for
one vendor then runs on another with a cache that is never emptied and figures that are never right.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

QUIET = (
    "empty_cache",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
)


def refuse() -> None:
    """Wrap them; torch's own calls go through, as it asks every kind of device it knows."""
    for name in QUIET:
        setattr(torch.cuda, name, _refusing(name, getattr(torch.cuda, name)))
    _refuse_autocast()


def _refuse_autocast() -> None:
    """Torch itself would warn and compute in full precision."""
    plain = torch.autocast.__init__

    @functools.wraps(plain)
    def init(self: Any, device_type: str, *arguments: Any, **options: Any) -> None:
        if device_type == "cuda":
            raise RuntimeError("autocast for 'cuda' on a machine whose devices are NPUs")
        plain(self, device_type, *arguments, **options)

    torch.autocast.__init__ = init  # type: ignore[method-assign]


def _refusing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if caller.partition(".")[0] == "torch":
            return function(*arguments, **options)
        raise RuntimeError(f"{caller} calls torch.cuda.{name} on a machine whose devices are NPUs")

    return call
