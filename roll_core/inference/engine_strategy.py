"""What strategies have in common that put an engine between themselves and their requests: the order of calls.

Importing this module loads nothing heavy: a config can be checked without torch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from roll_core.errors import WeightSyncError
from roll_core.inference.base import Completion, EngineState, GenerationRequest, InferStrategy

if TYPE_CHECKING:
    from torch import nn

    from roll_core.inference.running import GenerateCall
    from roll_core.weights import WeightReceiver

_STARTED = (EngineState.READY, EngineState.EMPTY, EngineState.ASLEEP)


class Engine(Protocol):
    """Requests in, completions out, each exactly once; changed only while it is paused."""

    weight_version: int

    def submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None]) -> GenerateCall:
        """Queue requests, which run whether or not their results are asked for. Waits for the end of `paused`, then
        asks `may_run`; if that raises, none is queued."""

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests, each with what it has; the ids of those that ended by it."""

    def paused(self, action: str) -> AbstractContextManager[None]:
        """Nothing runs in the block. Raises IllegalOrder where requests are running, or another such block is."""

    def stop(self) -> None:
        """End it; what runs is aborted."""


class EngineStrategy(InferStrategy):
    """An `InferStrategy` around an `engine`, which `start` makes.

    The weights change only while nothing runs: the cached keys and values of a request belong to the weights that
    made them, so `update_weights` and `sleep` refuse while requests run, and `abort` comes first.
    """

    engine: Engine

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        """Queue the requests at once and yield their completions as they finish.

        While weights are being taken it waits for their end.

        Raises:
            IllegalOrder: asleep, without weights, or stopped.
            BadRequest: a request cannot be served; then none of them runs.
            EngineFailed: the engine broke down; says how.
        """
        self.lifecycle.require("generate", *_STARTED)
        return self._results(self._submit(requests, partial(self._admit, requests)))

    def _submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None]) -> GenerateCall:
        return self.engine.submit(requests, may_run)

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        """Refuse what cannot run, by an error; called when nothing is being changed."""
        self.lifecycle.require("generate", EngineState.READY)

    def _results(self, call: GenerateCall) -> Iterator[Completion]:
        try:
            yield from call.results()
        finally:
            # Nobody waits for what is left.
            if call.open_ids:
                self.engine.abort(list(call.open_ids))

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests with what they have; the ids of those that ended by it."""
        self.lifecycle.require("abort", *_STARTED)
        return self.engine.abort(request_ids)

    def update_weights(self, receiver: WeightReceiver) -> str:
        """Take new weights, in every part of the engine; the digest of their version, names and shapes.

        Raises:
            IllegalOrder: asleep, stopped, or requests are running.
            WeightSyncError: the weights are not this model's (then the old ones stay), or came differently than
                announced, or were not all taken (then the engine has none until a whole update arrives).
        """
        from roll_core.inference.manifests import check_manifest, drain

        with self._changing("update weights", EngineState.READY, EngineState.EMPTY):
            try:
                check_manifest(self._module(), receiver.manifest)
            except WeightSyncError:
                drain(receiver)
                raise
            self.lifecycle.state = EngineState.EMPTY
            self._take(receiver)
            self.engine.weight_version = receiver.manifest.version
            self.lifecycle.state = EngineState.READY
        return receiver.manifest.digest

    def sleep(self) -> None:
        """Free the engine's device memory; where that cannot be, only what is cached is dropped."""
        with self._changing("sleep", EngineState.READY, EngineState.EMPTY):
            keeps_weights = self._free_memory()
            self._awake_state = self.lifecycle.state if keeps_weights else EngineState.EMPTY
            self.lifecycle.state = EngineState.ASLEEP

    def wake(self) -> None:
        """Take the device memory back."""
        with self._changing("wake", EngineState.ASLEEP):
            self._take_memory_back()
            self.lifecycle.state = self._awake_state

    def stop(self) -> None:
        """Abort what runs and end the engine. Stopping twice is no fault."""
        if self.lifecycle.state in _STARTED:
            self.engine.stop()
        self.lifecycle.state = EngineState.STOPPED

    @contextmanager
    def _changing(self, action: str, *allowed: EngineState) -> Iterator[None]:
        """Nothing runs in the block, and the state is one of those allowed: also when calls race."""
        self.lifecycle.require(action, *allowed)
        with self.engine.paused(action):
            self.lifecycle.require(action, *allowed)
            yield

    @abstractmethod
    def _module(self) -> nn.Module:
        """A module with the names and shapes that a trainer sends; its tensors need no memory."""

    @abstractmethod
    def _take(self, receiver: WeightReceiver) -> None:
        """Load what `receiver` yields, confirm that all of it came and was used, drop what was cached before.

        Raises:
            WeightSyncError: something is missing.
        """

    @abstractmethod
    def _free_memory(self) -> bool:
        """Free what a sleeping engine does not need; whether the weights are kept."""

    @abstractmethod
    def _take_memory_back(self) -> None:
        """Undo `_free_memory`."""
