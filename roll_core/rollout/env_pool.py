"""Environments in child processes that can be killed: none can hang, crash or fill the process that drives a run."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roll_core.objects import absolute_spec
from roll_core.rewards.child import receive_message, send_message
from roll_core.rollout.env_process import Setup
from roll_core.rollout.environments import Answer, Begin, Environments, Fault, FaultKind, Kind, Order

START_TIMEOUT_S = 120.0
"""Seconds that a process may take to import what its environments need."""
THREADS = 128
"""Environments of a process that are at work at once; the others wait until one is done. Without a bound, those that
compute would share the process's one core until all of them seemed to hang."""
_SEND_TIMEOUT_S = 30.0
_ENTRY = "import sys; from roll_core.rollout.env_process import main; main(int(sys.argv[1]))"


@dataclass
class _Episode:
    """What was played in a slot, so that it can be played again where its process was lost."""

    begin: Begin
    actions: list[str] = field(default_factory=list)
    last_text: str = ""
    is_lost: bool = False


@dataclass(eq=False)
class _Child:
    """A process. `sent` are orders it is at, with their deadlines.

    Where the one before it ended while several were at work, these are `suspects`; the end `is_unexplained` until one
    of them ends this one too, or all have been answered.
    """

    process: subprocess.Popen[bytes]
    connection: socket.socket
    deadline: float
    waiting: deque[Order]
    is_ready: bool = False
    sent: dict[int, tuple[Order, float]] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)
    is_unexplained: bool = False


class EnvPool(Environments):
    """Environments in `num_processes` processes, each environment in a thread of its own.

    A slot stays in one process. An environment that takes longer than the deadline is killed together with its
    process; the others that were in it are brought back by playing their actions again. Where a process ends by
    itself, those that were at work are played again one by one, until the one that ends it is found. A pool is used
    from one thread, which must not end before the pool is closed.

    Args:
        kinds: kinds of environments by tag.
        deadline_s: wall-clock seconds for one `reset` or `step`.
        limits: by tag, how many environments may be at work at once in all processes.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        num_processes: int = 1,
        deadline_s: float = 60.0,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        if num_processes < 1:
            raise ValueError(f"environments need at least one process, not {num_processes}")
        if deadline_s <= 0:
            raise ValueError(f"a deadline must be positive, not {deadline_s}")
        self.kinds = {
            tag: replace(kind, spec=absolute_spec(kind.spec), options=dict(kind.options)) for tag, kind in kinds.items()
        }
        self.num_processes, self.deadline_s, self.limits = num_processes, deadline_s, dict(limits or {})
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._episodes: dict[int, _Episode] = {}
        self._tags: dict[int, str] = {}
        self._at_work: Counter[str] = Counter()
        self._answers: list[tuple[int, Answer]] = []

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, orders: Sequence[Order]) -> None:
        """Have orders carried out."""
        for order in orders:
            if isinstance(order, Begin):
                self._tags[order.slot] = order.tag
            place = order.slot % self.num_processes
            if place not in self._children:
                self._start(place, deque())
            self._children[place].waiting.append(order)
        self._send()

    def poll(self, seconds: float) -> list[tuple[int, Answer]]:
        """Slots that have answered, with their answers; waits at most so long for the first."""
        until = time.monotonic() + seconds
        while not self._answers and any(child.waiting or child.sent for child in self._children.values()):
            left = max(0.0, until - time.monotonic())
            self._wait(left)
            self._send()
            if left == 0.0:
                break
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """End all processes. May be called again."""
        for child in self._children.values():
            self._selector.unregister(child.connection)
            child.connection.close()
        until = time.monotonic() + 2.0
        for child in self._children.values():
            # Its environments are closed on the way, if they do it at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
            _kill(child)
        self._children.clear()
        self._episodes.clear()
        self._at_work.clear()

    def _send(self) -> None:
        for place, child in list(self._children.items()):
            if child.waiting and not child.sent and child.is_ready and child.process.poll() is not None:
                self._crashed(place)  # With nothing to do: none of its environments is to blame.
                continue
            while child.is_ready and (order := self._next(child)) is not None:
                child.waiting.remove(order)
                sent = self._as_sent(order)
                child.sent[order.slot] = order, time.monotonic() + self.deadline_s * _plays(sent)
                self._at_work[self._tags[order.slot]] += 1
                try:
                    send_message(child.connection, sent)
                except OSError:
                    self._crashed(place)
                    break

    def _next(self, child: _Child) -> Order | None:
        """What the child may begin now: a bounded number in all and by tag, and one at a time while one is sought."""
        if len(child.sent) >= (1 if child.suspects else THREADS):
            return None
        for order in child.waiting:
            tag = self._tags[order.slot]
            is_full = tag in self.limits and self._at_work[tag] >= self.limits[tag]
            if self.kinds[tag].takes_turns:
                is_full |= any(self._tags[slot] == tag for slot in child.sent)
            if not is_full:
                return order
        return None

    def _as_sent(self, order: Order) -> Order:
        """An act in an environment that was lost begins it anew and plays everything again, the act included."""
        episode = self._episodes.get(order.slot)
        if isinstance(order, Begin) or episode is None or not episode.is_lost:
            return order
        actions = (*episode.begin.actions, *episode.actions)
        return replace(episode.begin, actions=actions, expected=episode.last_text, then=order.action)

    def _wait(self, seconds: float) -> None:
        children = self._children
        deadlines = [when for child in children.values() for when in _deadlines(child)]
        wait_s = min([seconds, *(max(0.0, when - time.monotonic()) for when in deadlines)])
        ready = [key.data for key, _ in self._selector.select(wait_s)]
        for place in ready:
            self._collect(place)
        # A deadline counts only for a process that had nothing to say: if this one was held up, it is not at fault.
        now = time.monotonic()
        for place, child in list(children.items()):
            if place in ready:
                continue
            late = [slot for slot, (_, deadline) in child.sent.items() if deadline <= now]
            if late:
                reason = f"the environment gave no answer within {self.deadline_s:g} s"
                self._replace(place, late[0], "hang", reason)
            elif not child.is_ready and child.deadline <= now:
                reason = f"the environment's process did not start within {START_TIMEOUT_S:g} s"
                self._replace(place, None, "crash", reason)

    def _collect(self, place: int) -> None:
        child = self._children[place]
        try:
            message = receive_message(child.connection)
        except (OSError, EOFError):
            self._crashed(place)
            return
        if not child.is_ready:
            child.is_ready = True
            return
        slot, answer = message
        order, _ = child.sent.pop(slot)
        child.suspects.discard(slot)
        if child.is_unexplained and not child.suspects:
            # None of them did it: it was ended from outside.
            child.is_unexplained = False
            self.restarts += 1
        self._at_work[self._tags[slot]] -= 1
        self._remember(order, answer)
        self._answers.append((slot, answer))

    def _remember(self, order: Order, answer: Answer) -> None:
        if isinstance(answer, Fault) or answer.is_over:
            self._episodes.pop(order.slot, None)
        elif isinstance(order, Begin):
            played = order.actions if order.then is None else (*order.actions, order.then)
            begin = replace(order, actions=played, expected=None, then=None)
            self._episodes[order.slot] = _Episode(begin, last_text=answer.text)
        else:
            episode = self._episodes[order.slot]
            episode.actions.append(order.action)
            episode.last_text, episode.is_lost = answer.text, False

    def _crashed(self, place: int) -> None:
        child = self._children[place]
        guilty = next(iter(child.sent)) if len(child.sent) == 1 else None
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(5.0)
        reason = f"the environment's process ended with code {child.process.returncode}"
        self._replace(place, guilty, "crash", reason)

    def _replace(self, place: int, guilty: int | None, kind: FaultKind, reason: str) -> None:
        """Kill a process: the environment that is to blame has a fault, the others are marked as lost and go on."""
        child = self._children.pop(place)
        self._selector.unregister(child.connection)
        _kill(child)
        for slot, episode in self._episodes.items():
            episode.is_lost |= slot % self.num_processes == place
        for slot in child.sent:
            self._at_work[self._tags[slot]] -= 1
        again = [order for order, _ in child.sent.values()]
        if not child.is_ready and child.waiting:
            # It ended while it started, before anything was sent: its first order is told, or all would wait for ever.
            guilty = child.waiting[0].slot
        suspects = (child.suspects | set(child.sent) if kind == "crash" else child.suspects) - {guilty}
        # Each end is counted once, whether or not others were at work when it came.
        is_unexplained = (guilty is None and bool(child.sent)) or (kind == "hang" and child.is_unexplained)
        self.restarts += guilty is not None or not is_unexplained
        waiting = deque(order for order in [*again, *child.waiting] if order.slot != guilty)
        if guilty is not None:
            self._episodes.pop(guilty, None)
            self._answers.append((guilty, Fault(kind, reason)))
        if waiting:
            child = self._start(place, waiting)
            child.suspects, child.is_unexplained = suspects, is_unexplained

    def _start(self, place: int, waiting: deque[Order]) -> _Child:
        ours, theirs = socket.socketpair()
        # The child must find what this process finds, also where sys.path was changed after start-up.
        paths = [path or str(Path.cwd()) for path in sys.path]
        process = subprocess.Popen(
            [sys.executable, "-u", "-P", "-c", _ENTRY, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            # What an environment prints must not mix with what this process writes for other programs to read.
            stdout=2,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            # Ctrl-C in a terminal goes to the run, which then ends its children in order.
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(_SEND_TIMEOUT_S)
        child = _Child(process, ours, time.monotonic() + START_TIMEOUT_S, waiting)
        # One that ended already is found so when its first message is awaited.
        with contextlib.suppress(OSError):
            send_message(ours, Setup(paths, self.kinds, os.getpid()))
        self._selector.register(ours, selectors.EVENT_READ, place)
        self._children[place] = child
        return child


def _plays(order: Order) -> int:
    """How many resets and steps an order is."""
    return 1 + len(order.actions) + (order.then is not None) if isinstance(order, Begin) else 1


def _deadlines(child: _Child) -> list[float]:
    return [deadline for _, deadline in child.sent.values()] if child.is_ready else [child.deadline]


def _kill(child: _Child) -> None:
    child.connection.close()
    if child.process.poll() is None:
        # Its session is a group of its own: whatever an environment started ends along with it.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
