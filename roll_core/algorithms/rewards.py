"""Response-level rewards, one per row: normalising, clipping, and placing on a token.

A row may be without a grade: its reward is NaN or `valid` is false for it. It enters no statistic and becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

Scope = Literal["batch", "group", "running"]
EPSILON = 1e-6


@dataclass(frozen=True)
class Moments:
    """Mean, unbiased standard deviation and number of graded rows of each row's group.

    Shapes: [B] float64 each. `std` is exactly 0 where all graded rewards of a group are equal or there are fewer
    than two; `mean` is then exactly that reward, so that deviations are exactly 0.
    """

    mean: torch.Tensor
    std: torch.Tensor
    count: torch.Tensor


def graded(rewards: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Which rows have a reward: [B] -> bool [B]."""
    numbers = ~torch.isnan(rewards)
    return numbers if valid is None else numbers & valid


def group_moments(rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor) -> Moments:
    """Moments over the graded rows with the same group id; rows of a group need not be neighbours.

    Shapes: rewards [B], group_ids integer [B], valid bool [B].
    """
    r = torch.where(valid, rewards, 0).to(torch.float64)
    groups, index = torch.unique(group_ids, return_inverse=True)
    zeros = torch.zeros(len(groups), dtype=torch.float64, device=r.device)
    count = zeros.index_add(0, index, valid.to(torch.float64))
    low = zeros.scatter_reduce(0, index[valid], r[valid], "amin", include_self=False)
    high = zeros.scatter_reduce(0, index[valid], r[valid], "amax", include_self=False)
    # Rounding in the mean of equal numbers would give them a tiny advantage, and a division blow it up.
    mean = torch.where(low == high, low, zeros.index_add(0, index, r) / count.clamp(min=1))
    squares = torch.where(valid, (r - mean[index]).square(), 0)
    std = (zeros.index_add(0, index, squares) / (count - 1).clamp(min=1)).sqrt()
    return Moments(mean[index], std[index], count[index])


@dataclass
class RunningMoments:
    """Mean and unbiased variance of every graded reward of a run so far.

    Batches are merged by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979). Call `update` with a batch before normalising it.
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""

    def update(self, rewards: torch.Tensor, valid: torch.Tensor | None = None) -> None:
        """Take the graded rewards of a batch [B] into account."""
        r = rewards[graded(rewards, valid)].to(torch.float64)
        if len(r) == 0:
            return
        mean = float(r.mean())
        squares = float((r - mean).square().sum())
        total = self.count + len(r)
        difference = mean - self.mean
        self.squares += squares + difference**2 * self.count * len(r) / total
        self.mean += difference * len(r) / total
        self.count = total

    @property
    def std(self) -> float:
        """Unbiased standard deviation; 0 for fewer than two rewards."""
        return float((self.squares / (self.count - 1)) ** 0.5) if self.count > 1 else 0.0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must hold."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint."""
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]


def normalise(
    rewards: torch.Tensor,
    group_ids: torch.Tensor,
    mean_type: Scope | None,
    std_type: Scope | None,
    valid: torch.Tensor | None = None,
    running: RunningMoments | None = None,
) -> torch.Tensor:
    """(r - mean) / (std + 1e-6), each of mean and std over the batch, the row's group, the run so far, or not at all.

    A standard deviation over fewer than two graded rewards, or over equal ones, scales nothing: the row gets
    r - mean. In particular a group of one with mean_type group gets 0.

    Args:
        rewards: [B]; NaN where a row has no grade.
        group_ids: integer [B], equal for the responses to one prompt.
        valid: bool [B], rows that have a grade; default those that are not NaN.
        running: moments that this batch has already been added to; only for `running`.

    Returns:
        [B] of the dtype of rewards, 0 where there is no grade.

    Raises:
        ValueError: an unknown type, or `running` without moments.
    """
    has_grade = graded(rewards, valid)
    r = torch.where(has_grade, rewards, 0).to(torch.float64)
    mean = torch.zeros_like(r) if mean_type is None else _moments(r, group_ids, has_grade, mean_type, running).mean
    if std_type is None:
        scale = torch.ones_like(r)
    else:
        std = _moments(r, group_ids, has_grade, std_type, running).std
        scale = torch.where(std > 0, std + EPSILON, 1)
    return torch.where(has_grade, (r - mean) / scale, 0).to(rewards.dtype)


def _moments(
    rewards: torch.Tensor, group_ids: torch.Tensor, valid: torch.Tensor, scope: Scope, running: RunningMoments | None
) -> Moments:
    if scope == "batch":
        return group_moments(rewards, torch.zeros_like(group_ids), valid)
    if scope == "group":
        return group_moments(rewards, group_ids, valid)
    if scope == "running":
        if running is None:
            raise ValueError("normalising by running moments needs them: pass running=RunningMoments()")
        whole = torch.ones_like(rewards)
        return Moments(running.mean * whole, running.std * whole, running.count * whole)
    raise ValueError(f"no normalisation over '{scope}'\n  there are: {', '.join(get_args(Scope))}, or none")


def clip(values: torch.Tensor, bound: float | None, mask: torch.Tensor) -> tuple[torch.Tensor, float]:
    """min(max(v, -bound), bound), and the share of the masked values that this changed.

    Shapes: values, mask equal. Without a bound nothing changes. Values outside the mask are clipped, not counted.
    """
    if bound is None:
        return values, 0.0
    outside = (values.abs() > bound) & mask
    return values.clamp(-bound, bound), float(outside.sum()) / max(int(mask.sum()), 1)


def place_on_last_token(rewards: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Token rewards that are 0 but for the row's reward on its last true token.

    A response without tokens has none to carry its reward: its row stays 0.

    Shapes: rewards [B], response_mask [B, R] -> [B, R] of the dtype of rewards.
    """
    later = response_mask.flip(-1).cumsum(-1).flip(-1)
    is_last = response_mask & (later == 1)
    return torch.where(is_last, rewards[:, None], 0)


def overlong_penalty(lengths: torch.Tensor, max_response_length: int, buffer: int) -> torch.Tensor:
    """What is added to a reward for coming near the longest response: 0, then falling to -1 over the last tokens.

        0                            where length <= L - buffer
        (L - buffer - length)/buffer where length is in the buffer, L = max_response_length
        -1                           at L and beyond

    Source: DAPO's soft overlong punishment, arXiv 2503.14476, equation 13.

    Args:
        lengths: [B] response tokens.
        buffer: tokens before the longest in which the penalty grows; at least 1.

    Returns:
        float32 [B].

    Raises:
        ValueError: a buffer that does not fit into the length.
    """
    if not 1 <= buffer <= max_response_length:
        raise ValueError(f"the buffer must be 1 to {max_response_length} tokens, the longest response, not {buffer}")
    return ((max_response_length - buffer - lengths).float() / buffer).clamp(-1, 0)
