"""Log-probabilities and values of a batch by the roles that score it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.data import DataProto
from roll_core.data.remote_batch import RowRemoteBatch
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.minibatches import Rows, shares, undeal
from roll_core.pipelines.remote_rollout import RemoteRollout
from roll_core.pipelines.weighting import sent, tokens_of

_Role = tuple[str, str, WorkerGroup, tuple[Any, ...]]
"""The column a role makes, the method that makes it, its workers, and the method's further arguments."""


@dataclass(frozen=True)
class _Job:
    """A column of the batch that a role is making."""

    name: str
    source: str
    calls: list[Call]
    rows: list[Rows]


class Scoring:
    """Which roles score a step's batch: the actor, a reference model, a critic; all at the same time."""

    def __init__(
        self,
        actor: WorkerGroup,
        reference: WorkerGroup | None,
        critic: WorkerGroup | None,
        waiter: Waiter,
        delivery: Delivery,
    ) -> None:
        self.actor, self.reference, self.critic, self.waiter = actor, reference, critic, waiter
        self.delivery = delivery

    def __call__(
        self, batch: DataProto | RemoteRollout, temperature: float, *, by_actor: bool
    ) -> DataProto | RemoteRollout:
        """The batch with old_log_probs, ref_log_probs and values, float32 [B, R], each where a role makes it."""
        roles: list[_Role] = [("old_log_probs", "log_probs", self.actor, (temperature, False))] if by_actor else []
        if self.reference is not None:
            roles.append(("ref_log_probs", "log_probs", self.reference, (temperature, False)))
        if self.critic is not None:
            roles.append(("values", "values", self.critic, ()))
        if not roles:
            return batch
        if isinstance(batch, RemoteRollout):
            return self._by_reference(batch, roles)
        needed = batch.select(sent(batch.columns))
        whole, lengths = self.delivery.whole(needed), tokens_of(needed)
        jobs = []
        for name, method, group, arguments in roles:
            rows = shares(lengths, len(group))
            parts = self.delivery.shares(whole, rows)
            jobs.append(_Job(name, method, group.scatter(method, parts, *arguments), rows))
        results = self._results(jobs)
        return batch.with_columns(**{job.name: undeal(made, job.rows)[job.source] for job, made in results})

    def _by_reference(self, rollout: RemoteRollout, roles: Sequence[_Role]) -> RemoteRollout:
        needed = rollout.rows.select(sent(rollout.rows.fields))
        lengths, partition = tokens_of(rollout.facts), self.delivery.store().partition
        jobs = []
        for name, method, group, arguments in roles:
            rows = shares(lengths, len(group))
            parts = self.delivery.shares(needed, rows)
            calls = group.scatter("put_scores", parts, partition, name, method, *arguments)
            jobs.append(_Job(name, method, calls, rows))
        found = rollout.rows
        for job, made in self._results(jobs):
            found = found.union(RowRemoteBatch.concat(made).index(np.argsort(np.concatenate(job.rows))))
        return replace(rollout, rows=found)

    def _results(self, jobs: Sequence[_Job]) -> list[tuple[_Job, list[Any]]]:
        results = iter(self.waiter.wait([call for job in jobs for call in job.calls]))
        return [(job, [next(results) for _ in job.calls]) for job in jobs]
