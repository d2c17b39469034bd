"""Sends samples to the reward workers of their domain, and notices when a worker had to be started again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from roll_core.cluster.calls import Call
from roll_core.cluster.group import WorkerGroup
from roll_core.data.answers import TEXT_COLUMN, RowStore, rows_of
from roll_core.errors import RollError
from roll_core.inference import Completion
from roll_core.rewards import RewardSample, Score, Status


@dataclass
class _Tally:
    """What a domain's samples took since the metrics were last told."""

    scored: int = 0
    ungraded: int = 0
    costs: Counter[str] = field(default_factory=Counter)

    def add(self, scores: Sequence[Score]) -> None:
        self.scored += len(scores)
        self.ungraded += sum(score.status is not Status.OK for score in scores)
        for score in scores:
            self.costs.update(score.costs)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RemoteResponses:
    """Completions (by request id) whose texts are in a store."""

    completions: Mapping[str, Completion]
    store: RowStore


class RewardRouter:
    """One group of reward workers per domain. Samples go to whichever worker of the domain has the fewest."""

    def __init__(self, domains: Mapping[str, WorkerGroup], notify: Callable[[str], None]) -> None:
        self.domains, self.notify = dict(domains), notify
        self.restarts = 0
        self._tallies = {domain: _Tally() for domain in self.domains}
        self._waiting = {domain: [0] * len(group) for domain, group in self.domains.items()}
        self._sent: dict[Call, tuple[str, int, list[str]]] = {}
        self._pids: dict[str, int] = {}
        # Rollouts may run in a thread of their own, beside a validation.
        self._lock = threading.Lock()

    def submit(
        self, domain: str, samples: Mapping[str, RewardSample], responses: RemoteResponses | None = None
    ) -> list[Call]:
        """Have samples (by request id) scored; split over the domain's workers where there are enough of them.

        With `responses`, those of the samples are left out and read by the workers.
        """
        with self._lock:
            return self._submit(domain, samples, responses)

    def _submit(
        self, domain: str, samples: Mapping[str, RewardSample], responses: RemoteResponses | None
    ) -> list[Call]:
        if domain not in self.domains:
            raise RollError(f"no reward for domain '{domain}'\n  configured: {', '.join(self.domains) or 'none'}")
        group, waiting = self.domains[domain], self._waiting[domain]
        ids = list(samples)
        share = -(-len(ids) // len(group))
        calls = []
        for start in range(0, len(ids), share):
            part = ids[start : start + share]
            rank = waiting.index(min(waiting))
            asked = [samples[request_id] for request_id in part]
            if responses is None:
                call = group.submit_to(rank, "compute_rewards", asked)
            else:
                rows = rows_of([responses.completions[request_id] for request_id in part]).select([TEXT_COLUMN])
                call = group.submit_to(rank, "compute_rewards_of_rows", asked, rows, responses.store)
            waiting[rank] += len(part)
            self._sent[call] = (domain, rank, part)
            calls.append(call)
        return calls

    def collect(self, call: Call, result: tuple[Sequence[Score], int]) -> dict[str, Score]:
        """Scores by request id, from the result of a finished call.

        Raises:
            RollError: a worker that did not return exactly one score per sample.
        """
        with self._lock:
            return self._collect(call, result)

    def _collect(self, call: Call, result: tuple[Sequence[Score], int]) -> dict[str, Score]:
        scores, pid = result
        domain, rank, ids = self._sent.pop(call)
        self._waiting[domain][rank] -= len(ids)
        if len(scores) != len(ids):
            raise RollError(f"reward '{domain}' returned {len(scores)} scores for {len(ids)} samples")
        self._tallies[domain].add(scores)
        if self._pids.setdefault(call.worker.name, pid) != pid:
            self._pids[call.worker.name] = pid
            self.restarts += 1
            self.notify(f"reward worker {call.worker.name} died and was started again; its samples were scored anew")
        return dict(zip(ids, scores))

    def take_metrics(self) -> dict[str, float]:
        """What scoring took since the last call: restarts so far; by domain, the share of samples without a verdict,
        and the sums of `Score.costs`."""
        with self._lock:
            metrics = {"rewards/worker_restarts": float(self.restarts)}
            for domain, tally in self._tallies.items():
                metrics[f"rewards/{domain}/ungraded_ratio"] = tally.ungraded / max(1, tally.scored)
                metrics |= {f"rewards/{domain}/{name}": float(total) for name, total in tally.costs.items()}
                # Names once seen are told at every step: a gap in a curve would look like a failure.
                self._tallies[domain] = _Tally(costs=Counter(dict.fromkeys(tally.costs, 0)))
            return metrics
