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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roll_core.objects import absolute_spec
from roll_core.rewards.child import receive_message, send_message
from roll_core.rollout.env_process import Act, Begin, Fault, Kind, Observed, Setup

START_TIMEOUT_S = 120.0
"""Seconds that a process may take to import what its environments need."""
_SEND_TIMEOUT_S = 30.0
_ENTRY = "import sys; from roll_core.rollout.env_process import main; main(int(sys.argv[1]))"

Order = Begin | Act


@dataclass
class _Episode:
    """What was played in a slot, so that it can be played again where its process was lost."""

    begin: Begin
    actions: list[str] = field(default_factory=list)
    last_text: str = ""
    is_lost: bool = False


@dataclass(eq=False)
class _Child:
    process: subprocess.Popen[bytes]
    connection: socket.socket
    orders: deque[tuple[int, Order]] = field(default_factory=deque)
    deadline: float = 0.0


class EnvPool:
    """Carries out orders for environments in numbered slots, in `num_processes` processes.

    A slot stays in one process. An environment that takes longer than the deadline is killed together with its
    process; the others that were in it are brought back by playing their actions again. A pool is used from one
    thread, which must not end before the pool is closed.

    Args:
        kinds: kinds of environments by tag.
        deadline_s: wall-clock seconds for one `reset` or `step`.
    """

    def __init__(self, kinds: Mapping[str, Kind], num_processes: int = 1, deadline_s: float = 60.0) -> None:
        if num_processes < 1:
            raise ValueError(f"environments need at least one process, not {num_processes}")
        if deadline_s <= 0:
            raise ValueError(f"a deadline must be positive, not {deadline_s}")
        self.kinds = {tag: Kind(absolute_spec(kind.spec), dict(kind.options)) for tag, kind in kinds.items()}
        self.num_processes, self.deadline_s = num_processes, deadline_s
        self.restarts = 0
        self._children: dict[int, _Child] = {}
        self._episodes: dict[int, _Episode] = {}

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, orders: Sequence[Order]) -> list[Observed | Fault]:
        """The answers, in the order of the orders; at most one order per slot."""
        answers: dict[int, Observed | Fault] = {}
        shares: dict[int, deque[tuple[int, Order]]] = {}
        for index, order in enumerate(orders):
            shares.setdefault(order.slot % self.num_processes, deque()).append((index, order))
        with selectors.DefaultSelector() as selector:
            for place, share in shares.items():
                self._send(place, share, selector, answers)
            while busy := {place: child for place, child in self._children.items() if child.orders}:
                self._wait(busy, selector, answers)
        return [answers[index] for index in range(len(orders))]

    def close(self) -> None:
        """End all processes. May be called again."""
        for child in self._children.values():
            child.connection.close()
        for child in self._children.values():
            # Its environments are closed on the way, if they do it at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(2.0)
            _kill(child)
        self._children.clear()
        self._episodes.clear()

    def _send(
        self,
        place: int,
        share: deque[tuple[int, Order]],
        selector: selectors.BaseSelector,
        answers: dict[int, Observed | Fault],
    ) -> None:
        child = self._children.get(place)
        if child is None:
            child = self._children[place] = self._start()
        child.orders = share
        selector.register(child.connection, selectors.EVENT_READ, place)
        child.deadline = time.monotonic() + self._allowed(child)
        try:
            child.connection.settimeout(_SEND_TIMEOUT_S)
            send_message(child.connection, [self._as_sent(order) for _, order in share])
        except OSError:
            self._replace(place, "crash", selector, answers)

    def _as_sent(self, order: Order) -> Order:
        """An act in an environment that was lost begins it anew and plays everything again, the act included."""
        episode = self._episodes.get(order.slot)
        if isinstance(order, Begin) or episode is None or not episode.is_lost:
            return order
        return replace(episode.begin, actions=tuple(episode.actions), expected=episode.last_text, then=order.action)

    def _allowed(self, child: _Child) -> float:
        order = self._as_sent(child.orders[0][1])
        plays = 2 + len(order.actions) if isinstance(order, Begin) and order.then is not None else 1
        return self.deadline_s * plays

    def _wait(
        self, busy: Mapping[int, _Child], selector: selectors.BaseSelector, answers: dict[int, Observed | Fault]
    ) -> None:
        wait_s = max(0.0, min(child.deadline for child in busy.values()) - time.monotonic())
        ready = [key.data for key, _ in selector.select(wait_s)]
        for place in ready:
            self._collect(place, selector, answers)
        # A deadline counts only for a process that had nothing to say: if this one was held up, it is not at fault.
        now = time.monotonic()
        for place, child in busy.items():
            if place not in ready and child.orders and child.deadline <= now:
                self._replace(place, "hang", selector, answers)

    def _collect(self, place: int, selector: selectors.BaseSelector, answers: dict[int, Observed | Fault]) -> None:
        child = self._children[place]
        try:
            answer = receive_message(child.connection)
        except (OSError, EOFError):
            self._replace(place, "crash", selector, answers)
            return
        index, order = child.orders.popleft()
        answers[index] = answer
        self._remember(order, answer)
        if child.orders:
            child.deadline = time.monotonic() + self._allowed(child)
        else:
            selector.unregister(child.connection)

    def _remember(self, order: Order, answer: Observed | Fault) -> None:
        if isinstance(answer, Fault) or answer.is_over:
            self._episodes.pop(order.slot, None)
        elif isinstance(order, Begin):
            self._episodes[order.slot] = _Episode(order, last_text=answer.text)
        else:
            episode = self._episodes[order.slot]
            episode.actions.append(order.action)
            episode.last_text, episode.is_lost = answer.text, False

    def _replace(
        self, place: int, kind: str, selector: selectors.BaseSelector, answers: dict[int, Observed | Fault]
    ) -> None:
        """Kill a process: the environment it was at has a fault, the others are marked as lost and go on."""
        child = self._children.pop(place)
        selector.unregister(child.connection)
        _kill(child)
        self.restarts += 1
        (index, order), *rest = child.orders
        if kind == "hang":
            answers[index] = Fault("hang", f"the environment gave no answer within {self.deadline_s:g} s")
        else:
            code = child.process.returncode
            answers[index] = Fault("crash", f"the environment's process ended with code {code}")
        self._episodes.pop(order.slot, None)
        for slot, episode in self._episodes.items():
            if slot % self.num_processes == place:
                episode.is_lost = True
        if rest:
            self._send(place, deque(rest), selector, answers)

    def _start(self) -> _Child:
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
        child = _Child(process, ours)
        # One that ended already, or does not get ready, is found so by its first order.
        with contextlib.suppress(OSError, EOFError):
            ours.settimeout(START_TIMEOUT_S)
            send_message(ours, Setup(paths, self.kinds, os.getpid()))
            receive_message(ours)
        return child


def _kill(child: _Child) -> None:
    child.connection.close()
    if child.process.poll() is None:
        # Its session is a group of its own: whatever an environment started ends along with it.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
