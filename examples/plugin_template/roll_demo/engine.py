"""An engine: core's, with another default. An engine of your own fills `roll_core.inference.InferStrategy`."""

from typing import ClassVar

from pydantic import BaseModel, Field

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference.hf import HfInferStrategy
from roll_core.inference.hf_config import HfInferConfig
from roll_core.platforms import Platform


class DemoEngineConfig(HfInferConfig):
    """`strategy_config` of demo_infer."""

    max_running_requests: int = Field(default=64, ge=1)


class DemoEngine(HfInferStrategy):
    """Decodes few requests together."""

    Config: ClassVar[type[BaseModel]] = DemoEngineConfig

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        super().__init__(role, platform, context)
        self.config = DemoEngineConfig.model_validate(role.strategy_config)
