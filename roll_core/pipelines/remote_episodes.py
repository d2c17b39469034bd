"""A run's episodes where they are played by a worker, as the driver sees them: references and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.remote_rollout import RemoteRollout

PLAY_TIMEOUT_S = 30 * 86400.0
"""Episodes take as long as they take: engines and environments have deadlines of their own, where they are played."""
READ_TIMEOUT_S = 60.0
"""For a state to be fetched from another node, or from memory that was written to disk."""
CLOSING_S = 10.0
_KEPT = "kept"


class RemoteEpisodes:
    """What `Episodes` is, played by an `EpisodeWorker`, which puts rows into the transport.

    A state of it is a reference, which outlives the worker: only a checkpoint reads what was said in open episodes. It
    is the state after the newest step was played, so that the death of the worker, or of any other, while that step is
    trained costs no step; what was said since is sampled again where a run goes on from there.
    """

    def __init__(
        self,
        worker: WorkerGroup,
        engines: WorkerGroup,
        waiter: Waiter,
        delivery: Delivery,
        notify: Callable[[str], None],
    ) -> None:
        self.worker, self.engines, self.waiter, self.delivery = worker, engines, waiter, delivery
        self.notify = notify
        self._is_asking = False
        self._state: Call
        self._ask_and_keep("begin")

    def __call__(self, step: int) -> tuple[RemoteRollout, dict[str, float]]:
        """References to the rows of a step's episodes, and metrics of them."""
        rollout, metrics = self._ask_and_keep("play", step, self.delivery.store(), timeout_s=PLAY_TIMEOUT_S)
        return rollout, metrics

    def validate(self, step: int) -> tuple[dict[str, float], int]:
        """Metrics of held-out episodes with the weights that engines have, and how many they were."""
        metrics, count = self._answer(self.worker.submit_to(0, "validate", step), PLAY_TIMEOUT_S)
        return metrics, count

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Engines are free in the block, for new weights and for validation."""
        self._ask("pause")
        yield
        self._ask("go_on")

    def weights_are(self, version: int) -> None:
        """Engines have new weights; those that died have been started again."""
        self._ask("weights_are", version, self.engines.handles)

    def state_dict(self) -> dict[str, Any]:
        """A reference to what a checkpoint must hold."""
        return {_KEPT: self._state}

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a state refers to. It may be read after the worker's end."""
        if _KEPT not in state:
            return state
        read: Mapping[str, Any]
        [read] = Waiter(READ_TIMEOUT_S).wait([state[_KEPT]])
        return read

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._ask_and_keep("load_state_dict", state)

    def close(self) -> None:
        """End all environments; they end with the worker where it has not answered yet."""
        import ray

        if self._is_asking:
            self.worker.kill()
        else:
            ray.wait([self.worker.submit_to(0, "close").ref], timeout=CLOSING_S)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._answer(self.worker.submit_to(0, method, *arguments))

    def _ask_and_keep(self, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """What a method returns, which hands over the worker's state with it."""
        call, state = self.worker.submit_split(0, method, *arguments)
        result = self._answer(call, timeout_s)
        self._state = state
        return result

    def _answer(self, call: Call, timeout_s: float | None = None) -> Any:
        self._is_asking = True
        [(result, notices)] = self.waiter.wait([call], timeout_s)
        self._is_asking = False
        for notice in notices:
            self.notify(notice)
        return result
