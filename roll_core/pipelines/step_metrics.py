"""The metrics of a step's batch: lengths, scores, tokens, groups and how scoring went."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from roll_core.algorithms.metrics import group_metrics, length_metrics, score_metrics, token_metrics
from roll_core.data import DataProto


def batch_metrics(batch: DataProto, max_response_length: int) -> dict[str, float]:
    """The metrics of a step's batch over all rows, and again under <domain>/ where there is more than one."""
    metrics = _metrics_of(batch, max_response_length)
    domains = batch.group_by("domain")
    if len(domains) > 1:
        for domain, rows in domains.items():
            metrics |= {f"{domain}/{name}": v for name, v in _metrics_of(rows, max_response_length).items()}
    return metrics


def _metrics_of(batch: DataProto, max_response_length: int) -> dict[str, float]:
    scores = torch.where(batch["is_graded"], batch["scores"], torch.nan)
    lengths, trained = batch["response_lengths"], batch["final_response_mask"]
    row_advantages = torch.where(trained, batch["advantages"], 0).sum(-1) / trained.sum(-1).clamp(min=1)
    return (
        length_metrics(batch["prompt_lengths"], lengths, scores, max_response_length)
        | score_metrics(scores, batch["response_level_rewards"])
        | token_metrics(
            trained,
            scores,
            token_rewards=batch["token_level_rewards"],
            advantages=batch["advantages"],
            raw_advantages=batch["raw_advantages"],
            returns=batch["returns"],
            values=batch.batch.get("values"),
        )
        | group_metrics(batch["group"], scores, lengths, row_advantages)
        | _status_metrics(batch["status"])
    )


def _status_metrics(statuses: Sequence[str]) -> dict[str, float]:
    count = max(1, len(statuses))
    return {
        f"reward_status/{name}": sum(status == name for status in statuses) / count
        for name in ("could_not_grade", "timeout", "error")
    }
