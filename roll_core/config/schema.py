"""Every config class in one place: import them from here."""

from roll_core.config.agentic import (
    AgenticConfig,
    CustomEnv,
    EnvManagerConfig,
    EnvMonitor,
    LlmProxy,
    RewardNormalization,
)
from roll_core.config.offline import DistillConfig, DPOConfig, SFTConfig
from roll_core.config.pipeline import BaseConfig, CheckpointConfig, RolloutMock, RouterArguments, TransferBackend
from roll_core.config.policy import ImportanceWeight, MismatchFilter, PPOConfig, TrainInferCorrection
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.role_sections import (
    DataArgs,
    GeneratingArgs,
    ModelArgs,
    RouterReplay,
    SequencePackingArgs,
    StrategyArgs,
    TrainingArgs,
)
from roll_core.config.roles import FilterConfig, RewardConfig, WorkerConfig
from roll_core.config.section import Section

__all__ = [
    "AgenticConfig",
    "BaseConfig",
    "CheckpointConfig",
    "CustomEnv",
    "DPOConfig",
    "DataArgs",
    "DistillConfig",
    "EnvManagerConfig",
    "EnvMonitor",
    "FilterConfig",
    "GeneratingArgs",
    "ImportanceWeight",
    "LlmProxy",
    "MismatchFilter",
    "ModelArgs",
    "PPOConfig",
    "RLVRConfig",
    "RewardConfig",
    "RewardNormalization",
    "RolloutMock",
    "RouterArguments",
    "RouterReplay",
    "SFTConfig",
    "Section",
    "SequencePackingArgs",
    "StrategyArgs",
    "TrainInferCorrection",
    "TrainingArgs",
    "TransferBackend",
    "WorkerConfig",
]
