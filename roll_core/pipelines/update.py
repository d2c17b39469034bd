"""Training on a step's batch: optimiser steps on all ranks, mini-batch by mini-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from roll_core.algorithms.losses import ValueLoss
from roll_core.cluster.calls import Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.config.schema import PPOConfig, WorkerConfig
from roll_core.data import DataProto
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.minibatches import Rows, shares
from roll_core.pipelines.weighting import MiniBatch, policy_batches, policy_loss, sent, tokens_of, value_batches


class PolicyUpdate:
    """Steps the actor. Rows that cannot have a gradient are not sent: leaving them out changes nothing."""

    def __init__(self, config: PPOConfig, trainer: WorkerGroup, waiter: Waiter, delivery: Delivery) -> None:
        self.config, self.trainer, self.waiter, self.delivery = config, trainer, waiter, delivery
        self.loss = policy_loss(config)

    def __call__(self, batch: DataProto | Sequence[MiniBatch], step: int) -> dict[str, float]:
        """Metrics averaged over the optimiser steps; `train/loss`, `train/lr` are the names users watch.

        The batch is cut into mini-batches here, unless a worker has done that.
        """
        history = []
        for mini in self._mini_batches(batch, step):
            parts = self.delivery.shares(mini.rows, shares(mini.lengths, len(self.trainer)))
            results = self.waiter.wait(self.trainer.scatter("train_step", parts, self.loss))
            metrics, seconds = results[0]
            history.append(metrics | {"actor/backward_seconds": seconds, "actor/rows_trained": float(len(mini.rows))})
        return average(history) | {"actor/backward_steps": float(len(history))} | named_for_users(history)

    def _mini_batches(self, batch: DataProto | Sequence[MiniBatch], step: int) -> Iterable[MiniBatch]:
        if not isinstance(batch, DataProto):
            return batch
        return delivered(self.delivery, batch, policy_batches(self.config, self.loss, batch, step))


class ValueUpdate:
    """Steps the critic on all rows, once per step of the pipeline."""

    def __init__(
        self, config: PPOConfig, critic: WorkerGroup, role: WorkerConfig, waiter: Waiter, delivery: Delivery
    ) -> None:
        self.config, self.critic, self.role, self.waiter, self.delivery = config, critic, role, waiter, delivery
        self.loss = ValueLoss(config.value_clip)

    def __call__(self, batch: DataProto | Sequence[MiniBatch], step: int) -> dict[str, float]:
        """Metrics averaged over the optimiser steps, under critic/."""
        history = []
        for mini in self._mini_batches(batch, step):
            parts = self.delivery.shares(mini.rows, shares(mini.lengths, len(self.critic)))
            results = self.waiter.wait(self.critic.scatter("train_step", parts, self.loss))
            history.append(results[0][0])
        averaged = average(history)
        return {name if name.startswith("critic/") else f"critic/{name}": value for name, value in averaged.items()}

    def _mini_batches(self, batch: DataProto | Sequence[MiniBatch], step: int) -> Iterable[MiniBatch]:
        if not isinstance(batch, DataProto):
            return batch
        return delivered(self.delivery, batch, value_batches(self.config, self.role, batch, step))


def delivered(delivery: Delivery, batch: DataProto, cut: Iterable[tuple[Rows, DataProto]]) -> Iterator[MiniBatch]:
    """A batch's mini-batches, given as rows of the batch and what trainers need of these, in the way they travel."""
    whole = delivery.whole(batch.select(sent(batch.columns)))
    for rows, mini in cut:
        yield MiniBatch(delivery.part(whole, rows, mini), tokens_of(mini))


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
