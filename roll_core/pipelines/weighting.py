"""What a mini-batch is given beside its rows: the weights of its tokens in the losses, which depend on all its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from roll_core.algorithms.aggregation import token_weights
from roll_core.algorithms.losses import PolicyLoss
from roll_core.algorithms.variants import VariantConfig
from roll_core.config.schema import PPOConfig, WorkerConfig
from roll_core.data import DataProto
from roll_core.data.remote_batch import RowRemoteBatch
from roll_core.data.vision import PREFIX
from roll_core.pipelines.common_shaping import correction_config
from roll_core.pipelines.minibatches import Rows, mini_batches

SENT = ("prompts", "prompt_lengths", "responses", "response_lengths", "response_mask")
"""Columns every trainer needs; a loss adds its own."""


def sent(names: Iterable[str]) -> list[str]:
    """Those of a batch's columns that every trainer needs: `SENT`, and what a model reads of the rows' images."""
    return [name for name in names if name in SENT or name.startswith(PREFIX)]


@dataclass(frozen=True)
class MiniBatch:
    """Rows of one optimiser step, or a reference to them, and their lengths in tokens, [b]."""

    rows: DataProto | RowRemoteBatch
    lengths: torch.Tensor


def policy_batches(
    config: PPOConfig, loss: PolicyLoss, batch: DataProto, step: int
) -> Iterator[tuple[Rows, DataProto]]:
    """For each optimiser step of the actor: which rows of the batch, and these rows with what the loss needs."""
    rows_each = config.actor_train.mini_batch_size
    for rows in mini_batches(len(batch), rows_each, config.ppo_epochs, seed=config.seed + step):
        mini = _weighted(config, loss, batch.index(rows))
        kept = rows_to_send(loss, mini)
        yield rows[kept], mini.index(kept)


def value_batches(
    config: PPOConfig, role: WorkerConfig, batch: DataProto, step: int
) -> Iterator[tuple[Rows, DataProto]]:
    """For each optimiser step of the critic: which rows of the batch, and these rows with what its loss needs."""
    for rows in mini_batches(len(batch), role.mini_batch_size, 1, seed=config.seed + step):
        mini = batch.index(rows)
        weights = token_weights(mini["final_response_mask"], "seq-mean-token-mean")
        kept = [*sent(mini.columns), "returns", "values"]
        yield rows, mini.select(kept).with_columns(loss_weight=weights)


def tokens_of(batch: DataProto) -> torch.Tensor:
    """Tokens of each row, prompt and response: [B]."""
    lengths: torch.Tensor = batch["prompt_lengths"] + batch["response_lengths"]
    return lengths


def _weighted(config: PPOConfig, loss: PolicyLoss, mini: DataProto) -> DataProto:
    mask, trained = mini["response_mask"], mini["final_response_mask"]
    mode, longest = config.loss_agg_mode, mini.meta_info["max_response_length"]
    weights = token_weights(trained, mode, mini["sample_weight"], longest)
    columns = {"loss_weight": weights}
    if config.use_kl_loss:
        columns["kl_weight"] = token_weights(trained, mode, None, longest)
    if config.entropy_loss_coef:
        columns["entropy_weight"] = token_weights(mask, mode, None, longest)
    kept = [*sent(mini.columns), "advantages", "scores", *_optional(config, loss, mini)]
    return mini.select(kept).with_columns(**columns)


def _optional(config: PPOConfig, loss: PolicyLoss, mini: DataProto) -> list[str]:
    names = ["old_log_probs"] if "old_log_probs" in mini else []
    names += ["is_weight"] if "is_weight" in mini else []
    names += ["ref_log_probs"] if config.use_kl_loss else []
    names += ["infer_log_probs"] if loss.correction is not None else []
    return names


def rows_to_send(loss: PolicyLoss, mini: DataProto) -> Rows:
    """Rows that can have a gradient; one where none has, so that the optimiser steps all the same.

    A step with zero gradients still moves by its momentum, as it would with all rows sent.
    """
    rows: Rows = np.flatnonzero(loss.rows_that_matter(mini.batch).numpy())
    return rows if len(rows) else np.zeros(1, dtype=np.int64)


def policy_loss(config: PPOConfig) -> PolicyLoss:
    """The actor's loss that the config asks for."""
    actor = config.actor_train
    is_range = config.use_pg_clip_range
    return PolicyLoss(
        variant=actor.pg_variant or "ppo",
        options=VariantConfig(
            pg_clip=config.pg_clip,
            pg_clip_low=config.pg_clip_low if is_range else None,
            pg_clip_high=config.pg_clip_high if is_range else None,
            dual_clip_loss=config.dual_clip_loss,
            tis_lower_bound=actor.tis_lower_bound,
            tis_upper_bound=actor.tis_upper_bound,
            topr_positive_weight=actor.topr_positive_weight,
            topr_negative_weight=actor.topr_negative_weight,
            cispo_epsilon_low=actor.cispo_epsilon_low,
            cispo_epsilon_high=actor.cispo_epsilon_high,
            cispo_use_unified_mask=actor.cispo_use_unified_mask,
            kimi15_tau=actor.kimi15_tau,
        ),
        importance_sampling=config.ratio_level,
        kl_loss_coef=config.kl_loss_coef if config.use_kl_loss else 0.0,
        entropy_loss_coef=config.entropy_loss_coef,
        rl_loss_coef=config.rl_loss_coef,
        correction=None if config.recomputes_old_log_probs else correction_config(config),
    )
