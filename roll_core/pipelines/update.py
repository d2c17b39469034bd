"""Training on a step's batch: mini-batches, weights of their tokens, optimiser steps on all ranks."""

from __future__ import annotations

import numpy as np
import torch

from roll_core.algorithms.aggregation import token_weights
from roll_core.algorithms.losses import PolicyLoss, ValueLoss
from roll_core.algorithms.variants import VariantConfig
from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.config.schema import PPOConfig, WorkerConfig
from roll_core.data import DataProto
from roll_core.data.vision import PREFIX
from roll_core.pipelines.common_shaping import correction_config
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.minibatches import Rows, deal, mini_batches

SENT = ("prompts", "prompt_lengths", "responses", "response_lengths", "response_mask")
"""Columns every trainer needs; a loss adds its own."""


def sent(batch: DataProto) -> list[str]:
    """`SENT`, and what a model reads of the rows' images where they have some."""
    return [*SENT, *(name for name in batch.columns if name.startswith(PREFIX))]


class PolicyUpdate:
    """Steps the actor. Rows that cannot have a gradient are not sent: leaving them out changes nothing."""

    def __init__(self, config: PPOConfig, trainer: WorkerGroup, waiter: Waiter, delivery: Delivery) -> None:
        self.config, self.trainer, self.waiter, self.delivery = config, trainer, waiter, delivery
        self.loss = policy_loss(config)

    def __call__(self, batch: DataProto, step: int) -> dict[str, float]:
        """Metrics averaged over the optimiser steps; `train/loss`, `train/lr` are the names users watch."""
        config, history = self.config, []
        whole = self.delivery.whole(batch.select(sent(batch)))
        rows_each = rows_per_mini_batch(config.actor_train)
        for rows in mini_batches(len(batch), rows_each, config.ppo_epochs, seed=config.seed + step):
            mini = self._weighted(batch.index(rows))
            kept = rows_to_send(self.loss, mini)
            mini = mini.index(kept)
            delivered = self.delivery.part(whole, rows[kept], mini)
            parts = self.delivery.shares(delivered, deal(mini, len(self.trainer)))
            results = self.waiter.wait(self.trainer.scatter("train_step", parts, self.loss))
            metrics, seconds = results[0]
            history.append(metrics | {"actor/backward_seconds": seconds, "actor/rows_trained": float(len(mini))})
        return average(history) | {"actor/backward_steps": float(len(history))} | named_for_users(history)

    def _weighted(self, mini: DataProto) -> DataProto:
        config = self.config
        mask, trained = mini["response_mask"], mini["final_response_mask"]
        mode, longest = config.loss_agg_mode, mini.meta_info["max_response_length"]
        weights = token_weights(trained, mode, mini["sample_weight"], longest)
        columns = {"loss_weight": weights}
        if config.use_kl_loss:
            columns["kl_weight"] = token_weights(trained, mode, None, longest)
        if config.entropy_loss_coef:
            columns["entropy_weight"] = token_weights(mask, mode, None, longest)
        kept = [name for name in (*sent(mini), "advantages", "scores", *self._optional(mini)) if name in mini]
        return mini.select(kept).with_columns(**columns)

    def _optional(self, mini: DataProto) -> list[str]:
        names = ["old_log_probs"] if "old_log_probs" in mini else []
        names += ["is_weight"] if "is_weight" in mini else []
        names += ["ref_log_probs"] if self.config.use_kl_loss else []
        names += ["infer_log_probs"] if self.loss.correction is not None else []
        return names


def rows_to_send(loss: PolicyLoss, mini: DataProto) -> Rows:
    """Rows that can have a gradient; one where none has, so that the optimiser steps all the same.

    A step with zero gradients still moves by its momentum, as it would with all rows sent.
    """
    rows: Rows = np.flatnonzero(loss.rows_that_matter(mini.batch).numpy())
    return rows if len(rows) else np.zeros(1, dtype=np.int64)


class ValueUpdate:
    """Steps the critic on all rows, once per step of the pipeline."""

    def __init__(
        self, config: PPOConfig, critic: WorkerGroup, role: WorkerConfig, waiter: Waiter, delivery: Delivery
    ) -> None:
        self.config, self.critic, self.role, self.waiter, self.delivery = config, critic, role, waiter, delivery
        self.loss = ValueLoss(config.value_clip)

    def __call__(self, batch: DataProto, step: int) -> dict[str, float]:
        """Metrics averaged over the optimiser steps, under critic/."""
        history = []
        whole = self.delivery.whole(batch.select(sent(batch)))
        for rows in mini_batches(len(batch), rows_per_mini_batch(self.role), 1, seed=self.config.seed + step):
            mini = batch.index(rows)
            weights = token_weights(mini["final_response_mask"], "seq-mean-token-mean")
            mini = mini.select([*sent(mini), "returns", "values"]).with_columns(loss_weight=weights)
            delivered = self.delivery.part(whole, rows, mini)
            parts = self.delivery.shares(delivered, deal(mini, len(self.critic)))
            results = self.waiter.wait(self.critic.scatter("train_step", parts, self.loss))
            history.append(results[0][0])
        averaged = average(history)
        return {name if name.startswith("critic/") else f"critic/{name}": value for name, value in averaged.items()}


def rows_per_mini_batch(role: WorkerConfig) -> int:
    """Rows of one optimiser step over all ranks."""
    training = role.training_args
    return training.per_device_train_batch_size * training.gradient_accumulation_steps * max(1, role.world_size or 1)


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


def average(history: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the optimiser steps that have it; of a `_max` or `_min` the extreme."""
    names = {name: None for metrics in history for name in metrics}
    found = {name: [metrics[name] for metrics in history if name in metrics] for name in names}
    return {name: _reduced(name, values) for name, values in found.items()}


def _reduced(name: str, values: list[float]) -> float:
    if name.endswith("_max"):
        return max(values)
    return min(values) if name.endswith("_min") else sum(values) / len(values)


def named_for_users(history: list[dict[str, float]]) -> dict[str, float]:
    """`train/loss` and `train/lr` (the last one used), and the names they have elsewhere."""
    if not history:
        return {}
    averaged, last = average(history), history[-1]
    return {
        "train/loss": averaged["loss"],
        "train/lr": last["lr"],
        "train/grad_norm": averaged["grad_norm"],
        "actor/lr": last["lr"],
        "actor_train/grad_norm": averaged["grad_norm"],
    }


def with_temperature(batch: DataProto, temperature: float) -> DataProto:
    """The batch with the temperature its responses were sampled at, which log-probabilities must share."""
    return DataProto(batch.batch, batch.non_tensor_batch, {**batch.meta_info, "temperature": temperature})


def is_empty(batch: DataProto) -> bool:
    """Whether nothing of the batch is trained on."""
    return not bool(torch.any(batch["final_response_mask"]))
