"""Training and scoring of models: the seam and what ships with the core."""

from roll_core.training.base import MicroBatch, ModelPatch, Tally, TokenLoss, TrainPlan, TrainStrategy

__all__ = ["MicroBatch", "ModelPatch", "Tally", "TokenLoss", "TrainPlan", "TrainStrategy"]
