"""How much each token counts in the loss, decided once for the whole mini-batch.

A loss is sum(token_weights * loss_per_token). Weights are made on the driver over all rows of a mini-batch, so
any cut into micro-batches or ranks adds up to the same loss, and no loss ever divides by what it happens to see.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

AggregationMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def token_weights(
    mask: torch.Tensor,
    mode: AggregationMode,
    sample_weights: torch.Tensor | None = None,
    max_response_length: int | None = None,
) -> torch.Tensor:
    """Weights w so that sum(w * loss) is the loss of an aggregation mode.

    With m the mask, s the sample weights (1 if not given), N the number of rows with any token in m:

        token-mean               w[b,t] = s[b] m[b,t] / sum(m)                      DAPO, arXiv 2503.14476
        seq-mean-token-sum       w[b,t] = s[b] m[b,t] / N                           REINFORCE over sequences
        seq-mean-token-mean      w[b,t] = s[b] m[b,t] / (sum_t m[b] N)              GRPO, arXiv 2402.03300
        seq-mean-token-sum-norm  w[b,t] = s[b] m[b,t] / (max_response_length N)     Dr. GRPO, arXiv 2503.20783

    Args:
        mask: bool [B, R], tokens that count; all false gives all zeros.
        sample_weights: [B].
        max_response_length: tokens; needed by seq-mean-token-sum-norm. A constant of the run, never the width of
            the batch, so that padding changes nothing.

    Returns:
        float32 [B, R], 0 wherever mask is false.

    Raises:
        ValueError: an unknown mode, or seq-mean-token-sum-norm without a length.
    """
    m = mask.to(torch.float64)
    lengths = m.sum(-1, keepdim=True)
    num_rows = (lengths > 0).sum().clamp(min=1)
    if mode == "token-mean":
        w = m / m.sum().clamp(min=1)
    elif mode == "seq-mean-token-sum":
        w = m / num_rows
    elif mode == "seq-mean-token-mean":
        w = m / (lengths.clamp(min=1) * num_rows)
    elif mode == "seq-mean-token-sum-norm":
        if max_response_length is None or max_response_length < 1:
            raise ValueError(f"seq-mean-token-sum-norm needs max_response_length >= 1, got {max_response_length}")
        w = m / (max_response_length * num_rows)
    else:
        raise ValueError(f"no loss_agg_mode named '{mode}'\n  there are: {', '.join(get_args(AggregationMode))}")
    if sample_weights is not None:
        w = torch.where(mask, w * sample_weights.to(torch.float64)[:, None], 0)
    return w.to(torch.float32)


def weighted_sum(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """sum(weights * values), where values under a zero weight are not read.

    Shapes: values, weights [B, R] -> scalar.
    """
    return (torch.where(weights != 0, values, 0) * weights).sum()


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the true tokens of each row: sum_t(m v) / sum_t(m); 0 for a row without any.

    Shapes: values, mask [B, R] -> [B, 1].
    """
    return torch.where(mask, values, 0).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def segment_index(mask: torch.Tensor) -> torch.Tensor:
    """Number, from 1, of the run of neighbouring true tokens that a token is in; under a false mask the last begun.

    A segment is one turn of a dialogue. Shapes: mask [B, R] -> integer [B, R].
    """
    starts = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return starts.long().cumsum(-1)
