"""Log-probabilities and values of a batch by the roles that score it."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.data import DataProto
from roll_core.pipelines.delivery import Delivered, Delivery
from roll_core.pipelines.minibatches import Rows, deal, undeal
from roll_core.pipelines.update import sent


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

    def __call__(self, batch: DataProto, temperature: float, *, by_actor: bool) -> DataProto:
        """The batch with old_log_probs, ref_log_probs and values, float32 [B, R], each where a role makes it."""
        needed = batch.select(sent(batch))
        is_scored = by_actor or self.reference is not None or self.critic is not None
        whole = self.delivery.whole(needed) if is_scored else needed
        jobs = []
        if by_actor:
            jobs.append(self._start("old_log_probs", "log_probs", self.actor, needed, whole, temperature, False))
        if self.reference is not None:
            jobs.append(self._start("ref_log_probs", "log_probs", self.reference, needed, whole, temperature, False))
        if self.critic is not None:
            jobs.append(self._start("values", "values", self.critic, needed, whole))
        results = iter(self.waiter.wait([call for job in jobs for call in job.calls]))
        columns = {job.name: undeal([next(results) for _ in job.calls], job.rows)[job.source] for job in jobs}
        return batch.with_columns(**columns)

    def _start(
        self, name: str, method: str, group: WorkerGroup, batch: DataProto, whole: Delivered, *arguments: object
    ) -> _Job:
        rows = deal(batch, len(group))
        parts = self.delivery.shares(whole, rows)
        return _Job(name, method, group.scatter(method, parts, *arguments), rows)
