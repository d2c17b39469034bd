"""`sglang`: SGLang's engine as an inference strategy, on any platform it has kernels for.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without SGLang.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import ConfigError, Problem, WeightSyncError
from roll_core.inference.base import EngineState, GenerationRequest
from roll_core.inference.engine_strategy import EngineStrategy
from roll_core.inference.sglang.config import SglangConfig, config_problems, engine_arguments
from roll_core.platforms.base import Ability

if TYPE_CHECKING:
    from torch import nn

    from roll_core.config.schema import WorkerConfig
    from roll_core.inference.sglang.engine import EngineProcess
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)


class SglangStrategy(EngineStrategy):
    """One engine on one device or, by its own parallel sizes, on several of one node.

    It was never run with SGLang on a device: it is checked against SGLang's source, and run against a stand-in.
    """

    Config: ClassVar[type[BaseModel]] = SglangConfig
    engine: EngineProcess

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
        from roll_core.inference.model_facts import ModelFacts
        from roll_core.inference.sglang.engine import EngineProcess
        from roll_core.inference.sglang.requests import RequestRules

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
        self.rules = RequestRules(self.facts.vocab_size, self.engine.max_length, self.facts.has_tokenizer)
        self.lifecycle.state = EngineState.EMPTY if self.config.load_format == "dummy" else EngineState.READY

    def _admit(self, requests: Sequence[GenerationRequest]) -> None:
        super()._admit(requests)
        for request in requests:
            self.rules.check(request)

    def _module(self) -> nn.Module:
        return self.facts.skeleton

    def _take(self, receiver: WeightReceiver) -> None:
        answers = self.engine.take_weights(receiver)
        if len(answers) != self.config.num_ranks:
            raise WeightSyncError(
                f"{len(answers)} of the engine's {self.config.num_ranks} ranks took the weights of version "
                f"{receiver.manifest.version}"
            )
        for answer in answers:
            answer.confirm("SGLang", receiver.manifest)

    def _free_memory(self) -> bool:
        if Ability.SLEEP not in self.platform.abilities():
            self.engine.call("flush")
            return True
        self.engine.call("release")
        return self.config.sleep_level == 1

    def _take_memory_back(self) -> None:
        if Ability.SLEEP in self.platform.abilities():
            self.engine.call("resume")
