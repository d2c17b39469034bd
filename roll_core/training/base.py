"""The seam for training: a model that can be stepped, scored, saved, and read out by an engine.

Shapes: B rows, P prompt columns (left-padded), R response columns (right-padded). Everything per token is
aligned to the response tokens, so log_probs[b, t] belongs to responses[b, t].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel

from roll_core.backend import Availability
from roll_core.context import WorkerContext
from roll_core.errors import Problem

if TYPE_CHECKING:
    import torch

    from roll_core.config.schema import WorkerConfig
    from roll_core.data import DataProto
    from roll_core.platforms import Platform


@dataclass(frozen=True)
class TrainPlan:
    """What a training role needs to know beyond its own config: how many optimiser steps the run will take."""

    total_steps: int
    max_grad_norm: float = 1.0


@dataclass(frozen=True)
class Tally:
    """A metric that adds up over micro-batches and ranks: `a + b` is what one pass over both would have given.

    `mean` is total / weight, the exact mean of what was weighed. `sum` is total: shares of a loss that was
    divided by its normaliser beforehand. `max` and `min` carry the extreme in `total`. A tally that weighed
    nothing (weight 0) changes nothing it is added to.
    """

    total: float
    weight: float = 1.0
    reduction: Literal["mean", "sum", "max", "min"] = "mean"

    def __add__(self, other: Tally) -> Tally:
        if self.reduction != other.reduction:
            raise ValueError(f"a tally of kind {self.reduction} added to one of kind {other.reduction}")
        weight = self.weight + other.weight
        if self.reduction in ("max", "min") and self.weight and other.weight:
            extreme = max if self.reduction == "max" else min
            return Tally(extreme(self.total, other.total), weight, self.reduction)
        totals = [tally.total for tally in (self, other) if tally.weight]
        return Tally(sum(totals), weight, self.reduction)

    @property
    def value(self) -> float:
        """The number to report; 0 where nothing was weighed."""
        if not self.weight:
            return 0.0
        return self.total / self.weight if self.reduction == "mean" else self.total


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a batch, trimmed to their own longest prompt and response.

    `log_probs`, `entropy` and `values` are [b, r], filled by the strategy before it calls the loss (each
    None unless it was asked for). `columns` holds the batch's other tensors: [b, r] if per token, else [b, ...].
    """

    response_mask: torch.Tensor
    columns: Mapping[str, torch.Tensor]
    log_probs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    values: torch.Tensor | None = None


class TokenLoss(Protocol):
    """A loss over tokens, given to `TrainStrategy.train_step`. It must be picklable.

    It returns this micro-batch's share of the loss, already divided by the normaliser of the whole
    mini-batch (over all micro-batches and ranks), so that shares add up; and the metrics to report.
    """

    @property
    def needs_entropy(self) -> bool:
        """Whether `MicroBatch.entropy` must be filled; it costs a pass over the whole vocabulary."""

    @property
    def needs_values(self) -> bool:
        """Whether `MicroBatch.values` must be filled; only critics can."""

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]: ...


class TrainStrategy(ABC):
    """A model on one or more devices, one instance per rank. Every rank is called alike and in the same order."""

    Config: ClassVar[type[BaseModel]]
    """Validates the role's `strategy_config`; unknown keys are errors."""

    def __init__(self, role: WorkerConfig, platform: Platform, context: WorkerContext) -> None:
        self.role, self.platform, self.context = role, platform, context

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """What in this role's config can't work here; called on the driver, imports nothing heavy."""
        return []

    @abstractmethod
    def setup(self, plan: TrainPlan | None) -> None:
        """Join the process group and load the model. A plan makes an optimiser too; None means scoring only."""

    @abstractmethod
    def train_step(self, batch: DataProto, loss: TokenLoss) -> dict[str, float]:
        """One optimiser step on this rank's rows of a mini-batch.

        Returns the loss's metrics reduced over all ranks, plus `loss`, `grad_norm` and `lr`.
        """

    @abstractmethod
    def log_probs(self, batch: DataProto, *, temperature: float = 1.0, entropy: bool = False) -> DataProto:
        """Columns `log_probs` and, if asked, `entropy`: float32 [B, R], 0 outside the responses."""

    def values(self, batch: DataProto) -> DataProto:
        """Column `values`: float32 [B, R], 0 outside the responses. Only critics have it."""
        raise NotImplementedError(f"{type(self).__name__} has no value head")

    @abstractmethod
    def weights(self, bucket_bytes: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """All weights as full tensors on the device, under their Hugging Face names, in a fixed order, in buckets.

        Every rank must exhaust the iterator. A bucket holds at least one tensor and at most `bucket_bytes` otherwise.
        Tied weights appear under each of their names.
        """

    def offload(self) -> None:
        """Move what lives on the device to host memory, so that a colocated engine fits."""

    def reload(self) -> None:
        """Undo `offload`."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write model, optimiser, schedule and random state under `path`; rank 0 adds the Hugging Face files."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Restore what `save` wrote, bit for bit.

        Raises:
            CheckpointError: when something is missing or does not fit.
        """

    def close(self) -> None:
        """Leave the process group."""


class ModelPatch(ABC):
    """A change to a model's modules, asked for by name in `strategy_config`."""

    name: ClassVar[str]

    @abstractmethod
    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        """Whether the patch fits this model; asked before `apply`, and an error with its reason if not."""

    @abstractmethod
    def apply(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        """Change the model in place, before it is sharded."""
