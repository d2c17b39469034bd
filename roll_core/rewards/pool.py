"""Scoring in child processes that can be killed: no sample can hang, crash or fill the process that trains."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import RollError
from roll_core.objects import absolute_spec
from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.builtin import BUILTIN_REWARDS, make_reward
from roll_core.rewards.child import SelfTest, receive_message, send_message
from roll_core.rewards.nursery import Child, Nursery, describe_exit

# Samples given to a child at once: enough to hide the round trip of a millisecond, and so few that none waits long
# behind the others though another child is free.
_CHUNK = 16
_CHUNK_S = 0.05
# A sample's part in the running mean of what samples take.
_NEWEST = 0.1
# A child reads a whole chunk before it scores, so it is silent for this long only if something is broken.
_SEND_TIMEOUT_S = 30.0


class RewardPool:
    """Scores samples with one reward, in `num_workers` child processes.

    Works in a Ray actor, in a plain script, and from any thread; several threads may share a pool. Children are
    started when first needed, replaced when they die, and end with this process, however it ends.

    Args:
        spec: name, dotted path or file path of the reward.
        num_workers: child processes.
        deadline_s: wall-clock seconds for one sample; a child that takes longer is killed.
        options: keyword arguments for the reward.
        memory_limit_bytes: address space of a child; the reward's own limit where None.
        start_timeout_s: seconds for loading the reward.
    """

    def __init__(
        self,
        spec: str,
        num_workers: int = 2,
        deadline_s: float = 5.0,
        *,
        options: Mapping[str, Any] | None = None,
        memory_limit_bytes: int | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        if num_workers < 1:
            raise ValueError(f"a pool needs at least one worker, not {num_workers}")
        if deadline_s <= 0:
            raise ValueError(f"a deadline must be positive, not {deadline_s}")
        self.spec = absolute_spec(spec)
        self.num_workers = num_workers
        self.deadline_s = deadline_s
        self._nursery = Nursery(self.spec, options or {}, memory_limit_bytes, start_timeout_s)
        # Only built-in rewards run here, and only what they bound themselves: a user's module stays in the children.
        self._quick: Reward | None = make_reward(self.spec, options) if self.spec in BUILTIN_REWARDS else None
        self._free: list[Child] = []
        self._num_lent = 0
        self._sample_s: float | None = None
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> RewardPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Load the reward now instead of at the first sample.

        Raises:
            RollError: the reward cannot be loaded.
        """
        self._nursery.start()

    def self_test(self) -> list[str]:
        """Sentences about an install in which the reward's verdicts would be wrong, found in a child process.

        Raises:
            RollError: the reward cannot be loaded, or its self-test dies or takes longer than 60 s.
        """
        (child,) = self._borrow(1)
        try:
            child.connection.settimeout(60.0)
            send_message(child.connection, SelfTest())
            problems: list[str] = receive_message(child.connection)
        except BaseException as error:
            end = self._end(child)
            self._give_back([], 1)
            if isinstance(error, OSError | EOFError):
                raise RollError(f"the self-test of reward '{self.spec}' did not finish ({end})") from error
            raise
        self._give_back([child])
        return problems

    def score_many(self, samples: Sequence[RewardSample]) -> list[Score]:
        """One score per sample, in their order.

        Raises:
            RollError: the reward cannot be loaded, or the pool is closed.
        """
        scores: list[Score | None] = [None] * len(samples)
        if self._quick is not None:
            scores = [self._quick.quick_score(sample) for sample in samples]
        waiting = deque(index for index, score in enumerate(scores) if score is None)
        if waiting:
            _Round(self, samples, scores, waiting).run()
        return [score for score in scores if score is not None]

    def close(self) -> None:
        """End all child processes. May be called again."""
        with self._changed:
            self._closed = True
            children, self._free = self._free, []
            self._changed.notify_all()
        for child in children:
            child.connection.close()
        self._nursery.stop()

    def _borrow(self, wanted: int, *, waits: bool = True) -> list[Child]:
        """Between one child and `wanted` of them; while all are in use it waits, or borrows none."""
        with self._changed:
            while waits and self._num_lent >= self.num_workers and not self._closed:
                self._changed.wait()
            if self._closed:
                raise RollError(f"the pool of reward '{self.spec}' is closed")
            count = min(wanted, self.num_workers - self._num_lent)
            self._num_lent += count
            ready = [self._free.pop() for _ in range(min(count, len(self._free)))]
        try:
            for place, child in enumerate(ready):
                if child.is_dead():
                    self._nursery.end(child)
                    ready[place] = self._nursery.fork()
            while len(ready) < count:
                ready.append(self._nursery.fork())
        except BaseException:
            self._give_back(ready, count)
            raise
        return ready

    def _give_back(self, children: list[Child], count: int | None = None) -> None:
        with self._changed:
            self._num_lent -= len(children) if count is None else count
            if not self._closed:
                self._free += children
            self._changed.notify_all()

    def _took(self, seconds: float) -> None:
        """A sample was scored, or given up."""
        with self._changed:
            earlier = seconds if self._sample_s is None else self._sample_s
            self._sample_s = earlier + _NEWEST * (seconds - earlier)

    def _chunk(self) -> int:
        """How many samples a child is given at once: one where they take long, or as long as that is not known."""
        seconds = self._sample_s
        return 1 if seconds is None else max(1, min(_CHUNK, int(_CHUNK_S / max(seconds, 1e-6))))

    def _end(self, child: Child) -> str:
        """Kill a borrowed child; how it ended, in words. Its place stays borrowed until `_give_back`."""
        status = self._nursery.end(child)
        return describe_exit(None if status is None else os.waitstatus_to_exitcode(status))

    def _fork(self) -> Child:
        return self._nursery.fork()


@dataclass
class _Work:
    """What a child is scoring: indices of samples, and since when the first of them."""

    indices: deque[int] = field(default_factory=deque)
    since: float = 0.0


class _Round:
    """One call of `score_many`: deals samples to children and replaces those that hang or die."""

    def __init__(
        self, pool: RewardPool, samples: Sequence[RewardSample], scores: list[Score | None], waiting: deque[int]
    ) -> None:
        self._pool = pool
        self._samples = samples
        self._scores = scores
        self._waiting = waiting
        self._work: dict[Child, _Work] = {}
        self._selector = selectors.DefaultSelector()
        self._places = 0

    def run(self) -> None:
        children = self._pool._borrow(len(self._waiting))
        self._places = len(children)
        try:
            for child in children:
                self._add(child)
            self._deal(children)
            while self._work:
                self._step()
                self._widen()
        finally:
            # Reached with work left only when interrupted: a child in mid-sample is of no use to the next caller.
            for child in self._work:
                self._pool._end(child)
            self._pool._give_back([], self._places)
            self._selector.close()

    def _add(self, child: Child) -> None:
        self._selector.register(child.connection, selectors.EVENT_READ, child)
        self._work[child] = _Work()

    def _step(self) -> None:
        first = min(work.since for work in self._work.values())
        wait_s = max(0.0, first + self._pool.deadline_s - time.monotonic())
        ready = [key.data for key, _ in self._selector.select(wait_s)]
        for child in ready:
            self._collect(child)
        # A deadline counts only for a child that had nothing to say: if this process was held up, it is not at fault.
        late = time.monotonic() - self._pool.deadline_s
        for child in [child for child, work in self._work.items() if child not in ready and work.since <= late]:
            self._pool._took(self._pool.deadline_s)
            self._replace(child, Status.TIMEOUT, self._too_slow)

    def _widen(self) -> None:
        """Take on children that other calls have given back: one that came while all were lent began with few."""
        if not self._waiting:
            return
        more = self._pool._borrow(len(self._waiting), waits=False)
        self._places += len(more)
        for child in more:
            self._add(child)
        self._deal(more)

    def _collect(self, child: Child) -> None:
        work = self._work[child]
        try:
            score = receive_message(child.connection)
        except (OSError, EOFError):
            self._replace(child, Status.ERROR, self._died)
            return
        self._scores[work.indices.popleft()] = score
        now = time.monotonic()
        self._pool._took(now - work.since)
        work.since = now
        if not work.indices:
            self._deal([child])

    def _too_slow(self, _end: str) -> str:
        return f"reward '{self._pool.spec}' gave no score within {self._pool.deadline_s:g} s"

    def _died(self, end: str) -> str:
        return f"the process of reward '{self._pool.spec}' died while scoring this sample ({end})"

    def _replace(self, child: Child, status: Status, reason: Callable[[str], str]) -> None:
        """Kill a child: the sample it was at gets `status`, the others it had are dealt again."""
        work = self._work.pop(child)
        self._selector.unregister(child.connection)
        end = self._pool._end(child)
        self._scores[work.indices.popleft()] = Score(0.0, status, reason(end))
        self._waiting.extendleft(reversed(work.indices))
        if self._waiting:
            replacement = self._pool._fork()
            self._add(replacement)
            self._deal([replacement])

    def _deal(self, children: list[Child]) -> None:
        idle = []
        for child in children:
            share = -(-len(self._waiting) // (2 * len(self._work)))
            indices = deque(self._waiting.popleft() for _ in range(min(self._pool._chunk(), share)))
            if not indices:
                idle.append(child)
                continue
            self._work[child] = _Work(indices, time.monotonic())
            try:
                child.connection.settimeout(_SEND_TIMEOUT_S)
                send_message(child.connection, [self._samples[index] for index in indices])
            except OSError:
                self._replace(child, Status.ERROR, self._died)
        for child in idle:
            self._selector.unregister(child.connection)
            del self._work[child]
        self._places -= len(idle)
        self._pool._give_back(idle)
