"""Every config class in one place: import them from here."""

from roll_core.config.pipeline import (
    BaseConfig,
    CheckpointConfig,
    ImportanceWeight,
    MismatchFilter,
    PPOConfig,
    RolloutMock,
    RouterArguments,
    TrainInferCorrection,
    TransferBackend,
)
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import (
    DataArgs,
    FilterConfig,
    GeneratingArgs,
    ModelArgs,
    RewardConfig,
    RouterReplay,
    SequencePackingArgs,
    StrategyArgs,
    TrainingArgs,
    WorkerConfig,
)
from roll_core.config.section import Section

__all__ = [
    "BaseConfig",
    "CheckpointConfig",
    "DataArgs",
    "FilterConfig",
    "GeneratingArgs",
    "ImportanceWeight",
    "MismatchFilter",
    "ModelArgs",
    "PPOConfig",
    "RLVRConfig",
    "RewardConfig",
    "RolloutMock",
    "RouterArguments",
    "RouterReplay",
    "Section",
    "SequencePackingArgs",
    "StrategyArgs",
    "TrainInferCorrection",
    "TrainingArgs",
    "TransferBackend",
    "WorkerConfig",
]
