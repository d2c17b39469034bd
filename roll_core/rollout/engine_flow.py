"""Generation that goes on while others train: a thread that keeps engines busy, and stops them when it is told to.

When weights change, what runs is aborted, and goes on from where it was under the new weights. What is generated,
prompts' answers or turns of episodes, is the matter of the two flows that are built on this one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import RollError, WorkerDied
from roll_core.inference import Completion, GenerationRequest
from roll_core.rollout.routing import EngineRouter, generates

POLL_S = 0.05
"""How long the thread looks at what runs before it looks whether something else is asked of it."""
CLOSING_S = 10.0

Ending = Literal["trained", "filtered", "stale", "faulty"]
"""How a rollout leaves: into a batch, dropped by a filter, too old by the time it was done, or for its faults."""


class OpenRollout(Protocol):
    """What was begun and has not left: a prompt with its answers, or a group of episodes.

    `first_version` is that of the weights that sampled its first token; numbers count what the run has drawn.
    """

    @property
    def number(self) -> int:
        """Its place in the order of what was drawn."""

    @property
    def first_version(self) -> int:
        """What its age is counted from."""

    @property
    def is_done(self) -> bool:
        """Whether it may be trained on."""


@dataclass
class Account:
    """How many rollouts were drawn, and what became of them. What is neither here nor there is still open."""

    drawn: int = 0
    ended: dict[Ending, int] = field(default_factory=lambda: {"trained": 0, "filtered": 0, "stale": 0})

    def open_by_account(self) -> int:
        """Rollouts that must still be open; a flow that holds another number has lost or doubled one."""
        return self.drawn - sum(self.ended.values())


Open = TypeVar("Open", bound=OpenRollout)


class EngineFlow(ABC, Generic[Open]):
    """Keeps up to `room` rollouts open: on their way through engines, or waiting for a batch.

    Everything that changes is guarded by one lock. Only the thread talks to engines, and only while it is not paused.
    """

    def __init__(self, engines: WorkerGroup, waiter: Waiter, router: EngineRouter) -> None:
        self.engines, self.waiter, self.router = engines, waiter, router
        self.room = 0
        self.version = 0
        self.account = Account()
        self.resumed = 0
        self.changed = threading.Condition()
        self._open: dict[int, Open] = {}
        self._running: list[Call] = []
        self._wants_pause, self._is_paused, self._is_closing = True, False, False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rollout", daemon=True)

    def start(self) -> None:
        """Start the thread, paused."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is open stays open."""
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSING_S)

    def weights_are(self, version: int) -> None:
        """Engines, which are paused, have new weights: what is begun from here on is sampled from them."""
        with self.changed:
            self.version = version

    def halt(self) -> None:
        """Nothing runs on any engine until `begin`; partial responses are kept.

        Raises:
            RollError: whatever ended the thread.
        """
        with self.changed:
            self._wants_pause = True
            self.changed.notify_all()
            self.wait_for(lambda: self._is_paused)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing runs on any engine in the block. May be nested; raises as `halt`."""
        with self.changed:
            before = self._wants_pause
        self.halt()
        # After an error it stays paused: the run ends, and what is open is saved as it is.
        yield
        with self.changed:
            self._wants_pause = before
            self.changed.notify_all()

    def begin(self) -> None:
        """Engines have weights; from here on they may be used."""
        with self.changed:
            self._wants_pause = False
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, holding the lock, until something is true or the thread has failed.

        Raises:
            RollError: whatever ended the thread.
        """
        self.changed.wait_for(lambda: self._failure is not None or condition())
        if self._failure is not None:
            raise self._failure

    def open_rollouts(self) -> list[Open]:
        """All that is open, in the order it was begun. To be called with the lock."""
        return list(self._open.values())

    def end(self, one: Open, ending: Ending) -> None:
        """A rollout leaves. To be called with the lock."""
        del self._open[one.number]
        self.account.ended[ending] += 1
        self.changed.notify_all()

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that is open, and what will be drawn next, as JSON data."""

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state as JSON data, also where it refers to what is elsewhere."""
        return state

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: nothing that was open is lost, and nothing is drawn twice."""

    @abstractmethod
    def _next_requests(self) -> list[list[GenerationRequest]]:
        """What engines are asked next, requests of one prompt together. Called with the lock, while not paused."""

    @abstractmethod
    def _withdrawn(self, request: GenerationRequest) -> None:
        """No engine has begun it, and none will. Called with the lock."""

    @abstractmethod
    def _answered(self, finished: Sequence[Completion]) -> None:
        """Engines have finished these, or were told to stop them."""

    def _ended(self, call: Call) -> None:
        """Another call than those to engines has ended."""
        raise AssertionError(f"nobody began {call.method}")

    def _look(self) -> list[Call]:
        """Calls that have something to say, after a short while at most."""
        return self.waiter.poll(self._running, POLL_S)

    def _is_idle(self) -> bool:
        """Whether nothing is on its way anywhere."""
        return not self._running

    def _leave(self) -> None:
        """The thread ends: what only it may use is closed here."""

    def _submit(self, requests: Sequence[Sequence[GenerationRequest]]) -> list[Call]:
        return self.router.submit(requests)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._work()
        except BaseException as error:
            with self.changed:
                self._failure = error
                self.changed.notify_all()
        finally:
            self._leave()

    def _work(self) -> None:
        with self.changed:
            generating = any(map(generates, self._running))
            self._is_paused = self._wants_pause and not generating
            self.changed.notify_all()
            if self._wants_pause:
                for request in self.router.recall():
                    self._withdrawn(request)
            requests = [] if self._wants_pause else self._next_requests()
            aborts = self._wants_pause and generating
            if not requests and self._is_idle():
                self.changed.wait(1.0)
                return
        if requests:
            self._running += self._submit(requests)
        if aborts and not any(call.method == "abort" for call in self._running):
            # Again and again: a call that had not begun when an abort came has not heard of it.
            self._running += self.engines.submit("abort", None)
        for call in self._finished():
            self._handle(call)

    def _finished(self) -> list[Call]:
        engines = self.engines
        try:
            return self._look()
        except WorkerDied:
            if not engines.find_lost() or len(engines.lost) == len(engines):
                raise
            # It was to abort what it ran; its other calls say the same when they are taken.
            self._running = [
                call for call in self._running if call.method != "abort" or call.worker.context.rank not in engines.lost
            ]
            return []

    def _handle(self, call: Call) -> None:
        if generates(call):
            progress = self.router.take(call)
            self._running += progress.begun
            if progress.is_over:
                self._running.remove(call)
            if progress.completions:
                self._answered(progress.completions)
            return
        self._running.remove(call)
        if call.method != "abort":
            self._ended(call)
        else:
            self.waiter.wait([call])


def check_account(flow: EngineFlow[Open]) -> None:
    """Everything that was drawn was trained, dropped or is open. To be called with the lock.

    Raises:
        RollError: a rollout was lost or counted twice; a fault of roll-core.
    """
    expected, found = flow.account.open_by_account(), len(flow.open_rollouts())
    if expected != found:
        raise RollError(f"the account of rollouts is wrong: {expected} must be open, {found} are ({flow.account})")
