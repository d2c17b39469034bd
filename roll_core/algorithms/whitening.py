"""Whitening of per-token numbers over the tokens that count."""

from __future__ import annotations

import logging

import torch

logger = logging.getLogger(__name__)


def whiten(values: torch.Tensor, mask: torch.Tensor, epsilon: float = 1e-8) -> torch.Tensor:
    """Zero mean and unit variance over the masked tokens of the whole batch.

        (v - mean_m(v)) / sqrt(var_m(v) + epsilon),   var unbiased

    With fewer than two tokens there is no variance: values are returned as they are and a warning is logged.

    Shapes: values, mask [B, R] -> [B, R] of the dtype of values, 0 where mask is false.
    """
    kept = torch.where(mask, values, 0)
    count = int(mask.sum())
    if count < 2:
        logger.warning("whitening skipped: it needs two tokens that count, the batch has %d", count)
        return kept
    v = kept.to(torch.float64)
    centred = torch.where(mask, v - v.sum() / count, 0)
    variance = centred.square().sum() / (count - 1)
    return (centred * torch.rsqrt(variance + epsilon)).to(values.dtype)
