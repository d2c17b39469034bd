"""Generation: the seam and the engines that ship with the core."""

from roll_core.inference.base import Completion, EngineState, GenerationRequest, InferStrategy, SamplingParams

__all__ = ["Completion", "EngineState", "GenerationRequest", "InferStrategy", "SamplingParams"]
