"""Packing weights while others still come: a thread of its own for it, as nothing is generated during an update."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from roll_core.inference.linear import Linear


class Packer:
    """Packs each projection as soon as all of its parts have come.

    Packing costs four to five times as much as copying the same bytes, so an update does not wait for its end: the
    first pass that follows waits for each projection when it needs it. Nothing is ever computed with another layout
    meanwhile, so results depend on no timing.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        # One thread, made for the first update. It asks torch how many threads it may use, which torch answers anew
        # for every thread.
        self._pool = ThreadPoolExecutor(1, "packing", initializer=torch.get_num_threads)
        self._linears = tuple(linear for linear in linears if linear.is_packed)
        self._part_of = {part.data_ptr(): linear for linear in self._linears for part in linear.parts}
        self._missing: dict[Linear, set[int]] = {}

    def begin(self) -> None:
        """Weights are about to change: none may be read any more. A failure of packing them before is forgotten."""
        for linear in self._linears:
            with suppress(Exception):
                linear.wait()
        self._missing = {linear: {part.data_ptr() for part in linear.parts} for linear in self._linears}

    def changed(self, weight: torch.Tensor) -> None:
        """A weight of the model has its new numbers."""
        address = weight.data_ptr()
        linear = self._part_of.get(address)
        if linear is None:
            return
        self._missing[linear].discard(address)
        if not self._missing[linear]:
            linear.pack_in(self._pool)

    def wait(self) -> None:
        """Return when nothing is being packed."""
        for linear in self._linears:
            linear.wait()

    def stop(self) -> None:
        """End the thread and let go of all weights."""
        self._pool.shutdown()
        self._linears, self._part_of, self._missing = (), {}, {}
