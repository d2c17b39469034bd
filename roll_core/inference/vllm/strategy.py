"""`vllm`: vLLM's asynchronous engine as an inference strategy, on any platform.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without vLLM.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import ConfigError, EngineFailed, Problem
from roll_core.inference.base import EngineState, GenerationRequest
from roll_core.inference.engine_strategy import EngineStrategy
from roll_core.inference.vllm.config import ENVIRONMENT, VllmConfig, config_problems, engine_arguments
from roll_core.platforms.base import Ability

if TYPE_CHECKING:
    from torch import nn

    from roll_core.config.schema import WorkerConfig
    from roll_core.inference.vllm.engine import AsyncEngine
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)


class VllmStrategy(EngineStrategy):
    """One engine on one device or, by its own parallel sizes, on several of one node.

    Weights reach vLLM's workers through the host's memory, whatever the device.
    """

    Config: ClassVar[type[BaseModel]] = VllmConfig
    engine: AsyncEngine

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        super().__init__(role, platform, context)
        self.config = VllmConfig.model_validate(role.strategy_config)
        self._is_cache_asleep = False

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """Arguments that the installed engine does not have or that are not the user's, and what cannot be had here."""
        return list(config_problems(role, platform))

    def start(self) -> None:
        """Start the engine and its processes, which takes half a minute and more.

        Raises:
            ConfigError: no model, or something that `problems` finds.
            EngineFailed: vLLM could not start.
        """
        from roll_core.inference.model_facts import ModelFacts
        from roll_core.inference.vllm.engine import AsyncEngine
        from roll_core.inference.vllm.requests import RequestRules

        self.lifecycle.require("start", EngineState.NEW)
        problems = self.problems(self.role, self.platform)
        if self.role.model_args.model_name_or_path is None:
            problems.append(Problem("model_args.model_name_or_path", "vllm needs a model folder"))
        if problems:
            raise ConfigError(problems)
        for name, value in {**ENVIRONMENT, **self.platform.engine_defaults("vllm").env}.items():
            os.environ.setdefault(name, value)
        arguments = engine_arguments(self.role, self.platform, self.context.seed)
        log.info("%s: vLLM's arguments: %s", self.context.role, arguments)
        self.facts = ModelFacts(arguments["model"], self.role.model_args.model_config_kwargs)
        self.engine = AsyncEngine(
            arguments, self.facts.eos_ids, f"{self.context.role}-{self.context.rank}", self.context.timeout_s
        )
        prepared = self.engine.rpc("roll_prepare", os.getpid())
        self.num_workers = len(prepared)
        self.rules = RequestRules(
            self.facts.vocab_size, self.engine.max_length, self.facts.has_tokenizer, not all(prepared)
        )
        self.lifecycle.state = EngineState.EMPTY if self.config.load_format == "dummy" else EngineState.READY

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        super()._admit(requests)
        for request in requests:
            self.rules.check(request)
        self._wake_cache()

    def _module(self) -> nn.Module:
        return self.facts.skeleton

    def _take(self, receiver: WeightReceiver) -> None:
        for answer in self.engine.take_weights(receiver, self.num_workers):
            answer.confirm("vLLM", receiver.manifest)
        self._wake_cache()
        # What was cached under the old weights would answer for the new ones.
        if self.engine.call("reset_prefix_cache") is False:
            raise EngineFailed("vLLM did not drop its prefix cache after an update of the weights")

    def _free_memory(self) -> bool:
        self.engine.call("reset_prefix_cache")
        if Ability.SLEEP not in self.platform.abilities():
            return True
        self.engine.call("sleep", level=self.config.sleep_level)
        self._is_cache_asleep = True
        return self.config.sleep_level == 1

    def _take_memory_back(self) -> None:
        """For the weights; room for the cache is made when it is needed, after new weights have come."""
        if self._is_cache_asleep:
            self.engine.call("wake_up", tags=["weights"])

    def _wake_cache(self) -> None:
        if self._is_cache_asleep:
            self.engine.call("wake_up", tags=["kv_cache"])
            self._is_cache_asleep = False
