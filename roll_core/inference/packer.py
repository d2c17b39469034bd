"""Packing a model's matrices behind an update of its weights, on threads of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from roll_core.inference.linear import Linear

NUM_THREADS = 2
"""Nothing is generated until the first matrices are packed, and the trainer has just sent its last: cores are idle."""


class Packer:
    """Packs projections again in the order they are used.

    Packing costs four to five times as much as copying the same bytes, so an update does not wait for it: the first
    pass that follows waits for each projection when it needs it. Nothing is ever computed with another layout
    meanwhile, so results depend on no timing.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        # Threads are made for the first update. Each asks torch how many it may use itself, which torch tells every
        # thread anew.
        self._pool = ThreadPoolExecutor(NUM_THREADS, "packing", initializer=torch.get_num_threads)
        self.linears = tuple(linear for linear in linears if linear.is_packed)

    def settle(self) -> None:
        """Return when no weight is being read, whether or not its packing failed: they are about to change."""
        for linear in self.linears:
            with suppress(Exception):
                linear.wait()

    def wait(self) -> None:
        """Return when everything is packed."""
        for linear in self.linears:
            linear.wait()

    def begin(self) -> None:
        """All weights have changed: pack them."""
        for linear in self.linears:
            linear.pack_in(self._pool)

    def stop(self) -> None:
        """End the threads and let go of all weights."""
        self._pool.shutdown()
        self.linears = ()
