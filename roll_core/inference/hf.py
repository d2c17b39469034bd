"""`hf_infer`: continuous batching on transformers models, on any platform's device.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without torch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import Problem, WeightSyncError
from roll_core.inference.base import Completion, EngineState, GenerationRequest, InferStrategy
from roll_core.inference.hf_config import HfInferConfig, config_problems

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.inference.running import GenerateCall
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)

_STARTED = (EngineState.READY, EngineState.EMPTY, EngineState.ASLEEP)
NEVER_UPDATED = -1
"""The version of weights that came from the model's folder."""


class HfInferStrategy(InferStrategy):
    """One model on one device.

    The weights change only while nothing runs: the cached keys and values of a request belong to the weights that
    made them, so `update_weights` and `sleep` refuse while requests run, and `abort` comes first.
    """

    Config: ClassVar[type[BaseModel]] = HfInferConfig

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        super().__init__(role, platform, context)
        self.config = HfInferConfig.model_validate(role.strategy_config)

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """Unknown keys, attention or precision that the platform lacks, adapters, engines of several devices."""
        return config_problems(role, platform)

    def start(self) -> None:
        """Load the model; with `load_format: dummy` build it and wait for the trainer's weights."""
        from roll_core.inference.engine import Engine, Limits
        from roll_core.inference.hf_model import HfModel

        self.lifecycle.require("start", EngineState.NEW)
        is_dummy = self.config.load_format == "dummy"
        self.model = HfModel(self.role, self.platform, self.config)
        config = self.config
        log.info("%s: %s", self.context.role, self.model.choice)
        self.engine = Engine(
            self.model.decoder(),
            Limits(
                config.max_running_requests, config.max_batch_tokens, config.max_cache_tokens, self.model.max_length
            ),
            self.model.device,
            self.model.eos_ids,
            self.model.tokenizer,
            NEVER_UPDATED,
        )
        self.lifecycle.state = EngineState.EMPTY if is_dummy else EngineState.READY

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        """Queue the requests at once and yield their completions as they finish.

        While weights are being taken it waits for their end.

        Raises:
            IllegalOrder: asleep, without weights, or stopped.
            BadRequest: a request cannot be served; then none of them runs.
            EngineFailed: the engine broke down; holds its traceback.
        """
        self.lifecycle.require("generate", *_STARTED)
        may_run = partial(self.lifecycle.require, "generate", EngineState.READY)
        return self._results(self.engine.submit(requests, may_run))

    def _results(self, call: GenerateCall) -> Iterator[Completion]:
        try:
            yield from call.results()
        finally:
            self.engine.abandon(call)

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests at once, with what they have; ids that are not running are not in the result."""
        self.lifecycle.require("abort", *_STARTED)
        return self.engine.abort(request_ids)

    def update_weights(self, receiver: WeightReceiver) -> str:
        """Take new weights; the digest of their version, names and shapes.

        Raises:
            IllegalOrder: asleep, stopped, or requests are running.
            WeightSyncError: the weights are not this model's (then the old ones stay), or came differently than
                announced (then the engine has none until a whole update arrives).
        """
        from roll_core.inference.hf_weights import check_manifest, drain, take

        with self._changing("update weights", EngineState.READY, EngineState.EMPTY):
            try:
                check_manifest(self.model.module, receiver.manifest)
            except WeightSyncError:
                drain(receiver)
                raise
            self.lifecycle.state = EngineState.EMPTY
            digest = take(self.model.module, receiver)
            self.engine.decoder.refresh()
            self.engine.weight_version = receiver.manifest.version
            self.lifecycle.state = EngineState.READY
        return digest

    def sleep(self) -> None:
        """Free the cache, and move the weights to host memory where the device has a memory of its own."""
        with self._changing("sleep", EngineState.READY, EngineState.EMPTY):
            self._awake_state = self.lifecycle.state
            self.engine.decoder.free()
            if self.model.device.type != "cpu":
                self.model.module.to("cpu")
            self.platform.empty_cache()
            self.lifecycle.state = EngineState.ASLEEP

    def wake(self) -> None:
        """Bring the weights back to the device."""
        with self._changing("wake", EngineState.ASLEEP):
            if self.model.device.type != "cpu":
                self.model.module.to(self.model.device)
            self.engine.decoder = self.model.decoder()
            self.lifecycle.state = self._awake_state

    def stop(self) -> None:
        """Abort what runs and end the engine's thread. Stopping twice is no fault."""
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
