"""`hf_infer`: continuous batching on transformers models, on any platform's device.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.context import WorkerContext
from roll_core.errors import Problem
from roll_core.inference.base import EngineState, GenerationRequest
from roll_core.inference.engine_strategy import EngineStrategy
from roll_core.inference.hf_config import HfInferConfig, config_problems

if TYPE_CHECKING:
    from torch import nn

    from roll_core.config.schema import WorkerConfig
    from roll_core.inference.engine import Engine
    from roll_core.inference.running import GenerateCall
    from roll_core.platforms import Platform
    from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)

NEVER_UPDATED = -1
"""The version of weights that came from the model's folder."""


class HfInferStrategy(EngineStrategy):
    """One model on one device."""

    Config: ClassVar[type[BaseModel]] = HfInferConfig
    engine: Engine

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

    def _submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None]) -> GenerateCall:
        return self.engine.submit(requests, may_run, self.model.read_images(requests))

    def _module(self) -> nn.Module:
        return self.model.module

    def _take(self, receiver: WeightReceiver) -> None:
        from roll_core.inference.hf_weights import take

        with self.engine.decoder.changing():
            take(self.model.module, receiver)

    def _free_memory(self) -> bool:
        """Free the cache, and move the weights to host memory where the device has a memory of its own."""
        self.engine.decoder.free()
        if self.model.device.type != "cpu":
            self.model.module.to("cpu")
        self.platform.empty_cache()
        return True

    def _take_memory_back(self) -> None:
        if self.model.device.type != "cpu":
            self.model.module.to(self.model.device)
        self.engine.decoder = self.model.decoder()
