"""`sglang`: SGLang's engine as an inference strategy, on any platform it has kernels for.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without SGLang.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import ConfigError, Problem, WeightSyncError
from roll_core.inference.base import Completion, EngineState, GenerationRequest, InferStrategy
from roll_core.inference.sglang.config import SglangConfig, config_problems, engine_arguments
from roll_core.platforms.base import Ability

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.inference.running import GenerateCall
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)

_STARTED = (EngineState.READY, EngineState.EMPTY, EngineState.ASLEEP)


class SglangStrategy(InferStrategy):
    """One engine on one device or, by its own parallel sizes, on several of one node.

    It was never run with SGLang on a device: it is checked against SGLang's source, and run against a stand-in.
    """

    Config: ClassVar[type[BaseModel]] = SglangConfig

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        super().__init__(role, platform, context)
        self.config = SglangConfig.model_validate(role.strategy_config)

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """Arguments that the installed engine does not have or that are not the user's, and what cannot be had here."""
        return list(config_problems(role, platform))

    def start(self) -> None:
        """Start the engine and its processes.

        Raises:
            ConfigError: no model, or something that `problems` finds.
            EngineFailed: SGLang could not start.
        """
        from roll_core.inference.end_tokens import has_tokenizer
        from roll_core.inference.sglang.engine import EngineProcess
        from roll_core.inference.sglang.requests import RequestRules
        from roll_core.inference.vllm.model_facts import ModelFacts

        self.lifecycle.require("start", EngineState.NEW)
        problems = self.problems(self.role, self.platform)
        path = self.role.model_args.model_name_or_path
        if path is None:
            problems.append(Problem("model_args.model_name_or_path", "sglang needs a model folder"))
        if problems or path is None:
            raise ConfigError(problems)
        arguments = engine_arguments(self.role, self.platform, self.context.seed)
        log.info("%s: SGLang's arguments: %s", self.context.role, arguments)
        self.facts = ModelFacts(path, self.role.model_args.model_config_kwargs)
        self.engine = EngineProcess(
            arguments,
            self.platform.engine_defaults("sglang").env,
            self.facts.eos_ids,
            f"{self.context.role}-{self.context.rank}",
            self.context.timeout_s,
        )
        vocab_size = int(self.facts.config.get_text_config().vocab_size)
        self.rules = RequestRules(vocab_size, self.engine.max_length, has_tokenizer(path))
        self.lifecycle.state = EngineState.EMPTY if self.config.load_format == "dummy" else EngineState.READY

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[Completion]:
        """Hand the requests to the engine at once and yield their completions as they finish.

        While weights are being taken it waits for their end.

        Raises:
            IllegalOrder: asleep, without weights, or stopped.
            BadRequest: a request cannot be served; then none of them runs.
            EngineFailed: the engine died; names the process and how it ended.
        """
        self.lifecycle.require("generate", *_STARTED)
        return self._results(self.engine.submit(requests, partial(self._admit, requests)))

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        self.lifecycle.require("generate", EngineState.READY)
        for request in requests:
            self.rules.check(request)

    def _results(self, call: GenerateCall) -> Iterator[Completion]:
        try:
            yield from call.results()
        finally:
            self.engine.abandon(call)

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests with what they have; the ids of those that ended by it."""
        self.lifecycle.require("abort", *_STARTED)
        return self.engine.abort(request_ids)

    def update_weights(self, receiver: WeightReceiver) -> str:
        """Take new weights on every rank of the engine; the digest of their version, names and shapes.

        Raises:
            IllegalOrder: asleep, stopped, or requests are running.
            WeightSyncError: the weights are not this model's (then the old ones stay), or came differently than
                announced, or were not all taken (then the engine has none until a whole update arrives).
        """
        from roll_core.inference.hf_weights import check_manifest, drain

        with self._changing("update weights", EngineState.READY, EngineState.EMPTY):
            try:
                check_manifest(self.facts.skeleton, receiver.manifest)
            except WeightSyncError:
                drain(receiver)
                raise
            self.lifecycle.state = EngineState.EMPTY
            answers = self.engine.take_weights(receiver)
            _confirm(answers, self.config.num_ranks, receiver)
            self.engine.weight_version = receiver.manifest.version
            self.lifecycle.state = EngineState.READY
        return receiver.manifest.digest

    def sleep(self) -> None:
        """Free the engine's device memory; on a platform that cannot, only what is cached is dropped."""
        with self._changing("sleep", EngineState.READY, EngineState.EMPTY):
            self._awake_state = self.lifecycle.state
            if Ability.SLEEP in self.platform.abilities():
                self.engine.call("release")
                if self.config.sleep_level == 2:
                    self._awake_state = EngineState.EMPTY
            else:
                self.engine.call("flush")
            self.lifecycle.state = EngineState.ASLEEP

    def wake(self) -> None:
        """Take the device memory back, for the weights and for the cache."""
        with self._changing("wake", EngineState.ASLEEP):
            if Ability.SLEEP in self.platform.abilities():
                self.engine.call("resume")
            self.lifecycle.state = self._awake_state

    def stop(self) -> None:
        """Abort what runs and end the engine's processes. Stopping twice is no fault."""
        if self.lifecycle.state in _STARTED:
            self.engine.stop()
        self.lifecycle.state = EngineState.STOPPED

    @contextmanager
    def _changing(self, action: str, *allowed: EngineState) -> Iterator[None]:
        """Nothing runs in the block, and the state is one of those allowed: also when calls race."""
        require = partial(self.lifecycle.require, action, *allowed)
        require()
        with self.engine.paused(action):
            require()
            yield


def _confirm(answers: Sequence[tuple[str, Sequence[str]]], num_ranks: int, receiver: WeightReceiver) -> None:
    manifest = receiver.manifest
    if len(answers) != num_ranks:
        raise WeightSyncError(
            f"{len(answers)} of the engine's {num_ranks} ranks took the weights of version {manifest.version}"
        )
    for digest, left_out in answers:
        if digest != manifest.digest:
            raise WeightSyncError(
                f"the weights of version {manifest.version} did not arrive as announced on a rank of the engine"
                f"\n  announced: {manifest.digest}, arrived: {digest}"
            )
        if left_out:
            raise WeightSyncError(
                f"SGLang left parameters at their old values, though version {manifest.version} came whole"
                f"\n  on a rank: {', '.join(left_out)}"
            )
