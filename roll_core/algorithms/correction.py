"""The engine that sampled the tokens and the model that trains on them disagree a little: measure and correct it.

With d = log p_train - log p_engine of the sampled tokens, the importance ratio exp(d) says how much more often the
trainer would have sampled a token. Ratios can be taken per token, per response or per contiguous run of
response tokens. Source: truncated importance sampling, Yao et al., "Your Efficient RL Framework Secretly Brings
You Off-Policy RL Training" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from roll_core.algorithms.aggregation import masked_mean, segment_index
from roll_core.algorithms.kl import LOG_RATIO_LIMIT
from roll_core.algorithms.tallies import Measure, mean_of

Granularity = Literal["token", "geometric", "sequence", "segment"]


@dataclass(frozen=True)
class ImportanceWeight:
    """Multiply the policy loss by min(ratio, upper_bound), a constant to the gradient. No bound: None."""

    weight_type: Granularity = "token"
    upper_bound: float | None = 1.2


@dataclass(frozen=True)
class MismatchFilter:
    """Leave out tokens whose ratio, or difference of probabilities, is outside bounds (both inclusive)."""

    agg_type: Granularity = "token"
    ratio_enabled: bool = False
    ratio_low: float = 0.8
    ratio_high: float = 1.2
    diff_enabled: bool = False
    diff_low: float = -0.2
    diff_high: float = 0.2


@dataclass(frozen=True)
class CorrectionConfig:
    """What to do about the mismatch: a weight, filters, both, or (neither) only measure it."""

    is_weight: ImportanceWeight | None = None
    filters: tuple[MismatchFilter, ...] = ()


@dataclass(frozen=True)
class Correction:
    """Weights [B, R] for the policy loss, 0 outside the mask given; the tokens the filters keep, bool [B, R]."""

    weights: torch.Tensor
    mask: torch.Tensor
    measures: dict[str, Measure]


def aggregate(values: torch.Tensor, mask: torch.Tensor, granularity: Granularity) -> torch.Tensor:
    """Per token: the value itself (token), the mean (geometric) or sum (sequence) of its response, or the mean of its
    run of neighbouring true tokens (segment: one turn of a dialogue).

    Shapes: values, mask [B, R] -> [B, R], 0 where the mask is false.
    """
    kept = torch.where(mask, values, 0)
    if granularity == "token":
        return kept
    if granularity == "geometric":
        return torch.where(mask, masked_mean(values, mask), 0)
    if granularity == "sequence":
        return torch.where(mask, kept.sum(-1, keepdim=True), 0)
    if granularity == "segment":
        segment = segment_index(mask)
        room = torch.zeros(len(mask), mask.shape[-1] + 1, dtype=kept.dtype, device=kept.device)
        total = room.scatter_add(-1, segment, kept)
        count = room.scatter_add(-1, segment, mask.to(kept.dtype))
        return torch.where(mask, (total / count.clamp(min=1)).gather(-1, segment), 0)
    raise ValueError(f"no aggregation named '{granularity}'\n  there are: {', '.join(get_args(Granularity))}")


def importance_ratio(log_ratio: torch.Tensor, mask: torch.Tensor, granularity: Granularity) -> torch.Tensor:
    """exp(aggregate(d)), with the exponent bounded by +-20. Shapes: all [B, R]; 1 where the mask is false."""
    return aggregate(log_ratio, mask, granularity).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def correct_mismatch(
    old_log_probs: torch.Tensor, infer_log_probs: torch.Tensor, mask: torch.Tensor, config: CorrectionConfig
) -> Correction:
    """Weights, kept tokens and metrics of a batch.

        ratio = exp(aggregate(log p_train - log p_engine))
        difference = aggregate(p_train - p_engine)
        weights = min(ratio, upper_bound)
        mask = mask and every filter's (low <= ratio <= high) and (low <= difference <= high)

    Means are over tokens at every granularity. Used on the driver before token_weights where log-probs were
    recomputed, and inside the loss where they were not.

    Shapes: old_log_probs (the trainer's), infer_log_probs (the engine's), mask [B, R].
    """
    old = torch.where(mask, old_log_probs.detach().float(), 0)
    infer = torch.where(mask, infer_log_probs.detach().float(), 0)
    measures: dict[str, Measure] = {}
    ratios: dict[Granularity, torch.Tensor] = {}
    differences: dict[Granularity, torch.Tensor] = {}
    for granularity in get_args(Granularity):
        ratios[granularity] = importance_ratio(old - infer, mask, granularity)
        differences[granularity] = aggregate(old.exp() - infer.exp(), mask, granularity)
        measures[f"actor/train_infer_ratio_{granularity}_mean"] = mean_of(ratios[granularity], mask)
        measures[f"actor/train_infer_diff_{granularity}_mean"] = mean_of(differences[granularity], mask)
    weights = mask.float()
    if config.is_weight is not None:
        ratio, bound = ratios[config.is_weight.weight_type], config.is_weight.upper_bound
        weights = torch.where(mask, ratio if bound is None else ratio.clamp(max=bound), 0)
        measures["actor/is_weight_clipfrac"] = mean_of(weights < ratio, mask)
    kept = mask
    for each in config.filters:
        name = f"actor/train_infer_{each.agg_type}"
        if each.ratio_enabled:
            ratio = ratios[each.agg_type]
            inside = (ratio >= each.ratio_low) & (ratio <= each.ratio_high)
            measures[f"{name}_ratio_mask_mean"] = mean_of(inside, mask)
            kept = kept & inside
        if each.diff_enabled:
            difference = differences[each.agg_type]
            inside = (difference >= each.diff_low) & (difference <= each.diff_high)
            measures[f"{name}_diff_mask_mean"] = mean_of(inside, mask)
            kept = kept & inside
    if config.filters:
        measures["actor/train_infer_final_mask_mean"] = mean_of(kept, mask)
    return Correction(weights, kept, measures)
