"""What the batch of a step looked like: lengths, scores, advantages and groups, under the names users watch.

Every function is pure and returns plain numbers by name. A family of names is absent where there was nothing to
measure (no wrong response, one response per prompt); nothing is reported as 0 that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from roll_core.algorithms.rewards import graded, group_moments


def summary(name: str, values: torch.Tensor, parts: Iterable[str] = ("mean", "max", "min")) -> dict[str, float]:
    """name/<part> of the values, any shape; parts are mean, max, min, std (unbiased) and diff (max - min)."""
    if values.numel() == 0:
        return {}
    v = values.detach().flatten().to(torch.float64)
    numbers = {
        "mean": lambda: v.mean(),
        "max": lambda: v.max(),
        "min": lambda: v.min(),
        "std": lambda: v.std() if len(v) > 1 else torch.zeros(()),
        "diff": lambda: v.max() - v.min(),
    }
    return {f"{name}/{part}": float(numbers[part]()) for part in parts}


def length_metrics(
    prompt_lengths: torch.Tensor, response_lengths: torch.Tensor, scores: torch.Tensor, max_response_length: int
) -> dict[str, float]:
    """token/*: lengths in tokens; `clip` is the share of responses that reached the longest allowed.

    Right responses are those with score 1; error responses the other graded ones.

    Shapes: all tensors [B].
    """
    spread = ("mean", "max", "min", "diff")
    total_lengths = prompt_lengths + response_lengths
    reached = (response_lengths >= max_response_length).double()
    metrics = summary("token/prompt_length", prompt_lengths)
    metrics |= summary("token/response_length", response_lengths, spread)
    metrics |= summary("token/total_length", total_lengths, spread)
    metrics |= summary("response_length", response_lengths, ("mean",))
    if len(reached):
        metrics["token/total_response_length/clip"] = float(reached.mean())
    has_grade = graded(scores)
    for name, rows in (("right_response", scores == 1), ("error_response", has_grade & (scores != 1))):
        metrics |= summary(f"token/{name}_length", response_lengths[rows])
        if rows.any():
            metrics[f"token/{name}_length/clip"] = float(reached[rows].mean())
    return metrics


def score_metrics(scores: torch.Tensor, rewards: torch.Tensor) -> dict[str, float]:
    """critic/score, critic/rewards, shares of right and wrong, and reward/mean, over the graded rows.

    critic/rewards is what training saw (normalised, clipped); critic/score and reward/mean what the rewards gave.

    Shapes: scores [B], NaN where there is no grade; rewards [B].
    """
    rows = graded(scores)
    right = (scores == 1).double()
    metrics = summary("critic/score", scores[rows]) | summary("critic/rewards", rewards[rows])
    metrics |= summary("reward", scores[rows], ("mean",))
    if len(rows):
        metrics["critic/ungraded_ratio"] = float((~rows).double().mean())
    if rows.any():
        metrics["critic/correct/mean"] = float(right[rows].mean())
        metrics["critic/score_distribution/max_value"] = float(scores[rows].max())
        metrics["critic/score_distribution/min_value"] = float(scores[rows].min())
        metrics["critic/score_distribution/correct_samples_ratio"] = float(right[rows].mean())
        metrics["critic/score_distribution/incorrect_samples_ratio"] = float((1 - right[rows]).mean())
    return metrics


def token_metrics(
    mask: torch.Tensor,
    scores: torch.Tensor,
    *,
    token_rewards: torch.Tensor,
    advantages: torch.Tensor,
    raw_advantages: torch.Tensor,
    returns: torch.Tensor,
    values: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
) -> dict[str, float]:
    """critic/*: per-token numbers over the tokens trained on, also apart for right (score 1) and error responses.

    Shapes: scores [B], all others [B, R].
    """
    metrics: dict[str, float] = {}
    row_means = torch.where(mask, token_rewards, 0).sum(-1) / mask.sum(-1).clamp(min=1)
    metrics |= summary("critic/token_level_rewards_mean", row_means[mask.any(-1)])
    named = {"advantages": advantages, "raw_advantages": raw_advantages, "returns": returns}
    if values is not None:
        named["values"] = values
    for name, numbers in named.items():
        metrics |= summary(f"critic/{name}", numbers[mask])
    if entropy is not None:
        metrics |= summary("critic/entropy", entropy[mask], ("mean",))
    for name, rows in (("right_response", scores == 1), ("error_response", graded(scores) & (scores != 1))):
        chosen = mask & rows[:, None]
        for kind, numbers in (("advantages", advantages), ("raw_advantages", raw_advantages)):
            metrics |= summary(f"critic/{name}/{kind}", numbers[chosen], ("mean", "max", "min", "std"))
    return metrics


def group_metrics(
    group_ids: torch.Tensor, scores: torch.Tensor, response_lengths: torch.Tensor, row_advantages: torch.Tensor
) -> dict[str, float]:
    """group/*: how the responses to one prompt differ; empty unless some prompt has two graded ones.

    zero_std_ratio is the share of groups whose rewards are all equal: they teach nothing by comparison.

    Shapes: all [B]; row_advantages is the mean advantage of a row's tokens.
    """
    rows = graded(scores)
    counts = group_moments(scores, group_ids, rows)
    several = rows & (counts.count > 1)
    if not several.any():
        return {}
    lengths: list[float] = []
    spreads: list[float] = []
    gaps: list[float] = []
    correct: list[float] = []
    equal: list[float] = []
    for group in torch.unique(group_ids[several]).tolist():
        members = several & (group_ids == group)
        right = scores[members] == 1
        advantages = row_advantages[members].double()
        lengths.append(float(response_lengths[members].max() - response_lengths[members].min()))
        spreads.append(float(advantages.max() - advantages.min()))
        correct.append(float(right.double().mean()))
        equal.append(float(scores[members].min() == scores[members].max()))
        if right.any() and not right.all():
            gaps.append(float(advantages[right].mean() - advantages[~right].mean()))
    ratios = torch.tensor(correct, dtype=torch.float64)
    metrics = summary("group/response_length_diff", torch.tensor(lengths, dtype=torch.float64))
    metrics |= summary("group/advantage_diff", torch.tensor(spreads, dtype=torch.float64))
    metrics |= summary("group/correct_ratio", ratios, ("mean", "std"))
    metrics |= summary("group/correct_vs_incorrect_advantage_diff", torch.tensor(gaps), ("mean", "std"))
    metrics["group/all_correct_groups_ratio"] = float((ratios == 1).double().mean())
    metrics["group/all_incorrect_groups_ratio"] = float((ratios == 0).double().mean())
    metrics["group/mixed_groups_ratio"] = float(((ratios > 0) & (ratios < 1)).double().mean())
    metrics["group/zero_std_ratio"] = sum(equal) / len(equal)
    return metrics
