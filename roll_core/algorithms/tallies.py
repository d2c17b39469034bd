"""Metrics of a loss as tallies, fetched from the device in one transfer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from roll_core.training import Tally


@dataclass(frozen=True)
class Measure:
    """A tally still on the device: two scalars and how they add up."""

    total: torch.Tensor
    weight: torch.Tensor
    reduction: Literal["mean", "sum", "max", "min"] = "mean"


def mean_of(values: torch.Tensor, mask: torch.Tensor) -> Measure:
    """Mean over the true tokens, also of booleans. Shapes: values, mask equal."""
    return Measure(torch.where(mask, values.float(), 0).sum(), mask.sum())


def sum_of(total: torch.Tensor) -> Measure:
    """A share of a loss, already divided by its normaliser. Shape: scalar."""
    return Measure(total, torch.ones_like(total), "sum")


def max_of(values: torch.Tensor, mask: torch.Tensor) -> Measure:
    """Largest value of the true tokens. Shapes: values, mask equal."""
    picked = torch.where(mask, values.float(), -torch.inf).flatten()
    return Measure(picked.amax() if picked.numel() else picked.sum(), mask.sum(), "max")


def min_of(values: torch.Tensor, mask: torch.Tensor) -> Measure:
    """Smallest value of the true tokens. Shapes: values, mask equal."""
    picked = torch.where(mask, values.float(), torch.inf).flatten()
    return Measure(picked.amin() if picked.numel() else picked.sum(), mask.sum(), "min")


def fetch(measures: Mapping[str, Measure]) -> dict[str, Tally]:
    """All measures as numbers; the device is waited for once."""
    if not measures:
        return {}
    scalars = [scalar.detach().float() for measure in measures.values() for scalar in (measure.total, measure.weight)]
    numbers = torch.stack(scalars).tolist()
    return {
        name: Tally(total, weight, measure.reduction)
        for (name, measure), total, weight in zip(measures.items(), numbers[::2], numbers[1::2])
    }
