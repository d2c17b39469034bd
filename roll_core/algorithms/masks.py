"""Which rows are trained on, and how much each counts. All of it over the whole batch of a step."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roll_core.algorithms.rewards import graded, group_moments


def max_len_mask(response_mask: torch.Tensor, max_response_length: int) -> torch.Tensor:
    """Keep responses shorter than the longest allowed: the others were cut off, so their score means little.

    Shapes: response_mask [B, R] -> bool [B].
    """
    return response_mask.sum(-1) < max_response_length


def difficulty_mask(
    scores: torch.Tensor, group_ids: torch.Tensor, low: float, high: float, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Keep groups with low < mean score < high, both strict. With one response per prompt everything is kept.

    Rows without a grade are left out of the mean; a group without any grade is kept (it has no difficulty).

    Shapes: scores [B], group_ids integer [B], valid bool [B] -> bool [B].
    """
    _, sizes = torch.unique(group_ids, return_counts=True)
    if (sizes <= 1).all():
        return torch.ones_like(group_ids, dtype=torch.bool)
    group = group_moments(scores, group_ids, graded(scores, valid))
    return ((group.mean > low) & (group.mean < high)) | (group.count == 0)


def error_max_len_mask(scores: torch.Tensor, response_mask: torch.Tensor, threshold: int) -> torch.Tensor:
    """Drop wrong answers (score <= 0) of `threshold` tokens or more; right and partly right ones stay.

    Shapes: scores [B], response_mask [B, R] -> bool [B].
    """
    return (scores > 0) | (response_mask.sum(-1) < threshold)


def sample_weights(
    kept: torch.Tensor, difficulty: torch.Tensor | None = None, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """Weights of rows, mean 1 over those kept.

        by difficulty  0.5 + 1.5 clamp(difficulty, 0, 1)
        by length      1.5 - (length - shortest) / (longest - shortest + 1e-8)

    and the product of both where both are given.

    Args:
        kept: bool [B], rows that are trained on.
        difficulty: [B]; NaN where it is not known, which weighs 1.
        lengths: [B] response tokens.

    Returns:
        float64 [B], 0 for rows that are not kept.
    """
    weights = torch.ones(len(kept), dtype=torch.float64, device=kept.device)
    if difficulty is not None:
        known = ~torch.isnan(difficulty)
        weights = torch.where(known, weights * (0.5 + 1.5 * difficulty.nan_to_num().clamp(0, 1)), weights)
    if lengths is not None and kept.any():
        shortest, longest = lengths[kept].min(), lengths[kept].max()
        weights = weights * (1.5 - (lengths - shortest) / (longest - shortest + 1e-8))
    weights = torch.where(kept, weights, 0)
    return weights * kept.sum() / weights.sum().clamp(min=1e-8)


def final_mask(
    response_mask: torch.Tensor, row_masks: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, float]]:
    """The response tokens of rows that every row mask keeps, and what each mask did.

    Shapes: response_mask [B, R]; row_masks bool [B] by name (max_len_mask, difficulty_mask, error_len_mask, ...)
    -> bool [B, R]. Metrics: the share each keeps (actor/<name>_ratio), the share all keep, numbers of rows, and
    mask/final_mask_sum_eq_0, 1 where nothing is left to train on.
    """
    mask = response_mask
    metrics: dict[str, float] = {}
    for name, rows in row_masks.items():
        mask = mask & rows[:, None]
        metrics[f"actor/{name}_ratio"] = float(rows.float().mean()) if len(rows) else 0.0
    used, total = int(mask.any(-1).sum()), len(mask)
    metrics["actor/final_mask_ratio"] = used / max(total, 1)
    metrics["actor/samples_used"] = float(used)
    metrics["actor/samples_total"] = float(total)
    metrics["mask/final_mask_sum_eq_0"] = float(used == 0)
    return mask, metrics


def rows_that_matter(
    advantages: torch.Tensor, loss_weight: torch.Tensor, *regulariser_weights: torch.Tensor
) -> torch.Tensor:
    """Rows that can have a gradient; leaving the others out of a step changes no weight of the model.

    A row matters where it has a token with a weight and an advantage, or with a weight for a term that does not
    contain the advantage (divergence, entropy).

    Shapes: all [B, R] -> bool [B].
    """
    matters = ((advantages != 0) & (loss_weight != 0)).any(-1)
    for weight in regulariser_weights:
        matters = matters | (weight != 0).any(-1)
    return matters
