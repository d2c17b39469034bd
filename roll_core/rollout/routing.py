"""Which engine answers which request, how many at once, and who takes over when an engine dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from roll_core.cluster.calls import Call, Waiter
from roll_core.cluster.group import WorkerGroup
from roll_core.errors import WorkerDied
from roll_core.inference import Completion, GenerationRequest

if TYPE_CHECKING:
    from roll_core.data.answers import RowStore

YIELD_INTERVAL_S = 0.05
"""How often an engine hands over what it has finished. A message costs about a millisecond on both sides."""

MOST_CALLS = 64
"""Calls of `generate` at once where every turn of an episode is sent by itself: each takes a thread of an engine's
process. What comes meanwhile goes into the next."""

Order = Literal["in turn", "least loaded"]


@dataclass(frozen=True)
class AnswerStore:
    """Where engines put what they answer.

    `folder` holds the tokenizer that makes text of it and, where prompts have images, what reads those.
    """

    rows: RowStore
    folder: str
    has_images: bool = False


@dataclass
class Progress:
    """What became of a call: completions, whether it has ended, and calls that were begun because of it."""

    completions: list[Completion] = field(default_factory=list)
    is_over: bool = False
    begun: list[Call] = field(default_factory=list)


def generates(call: Call) -> bool:
    """Whether engines answer requests in this call."""
    return call.method in ("generate", "generate_rows")


class EngineRouter:
    """Deals requests to engines in groups: those of one prompt stay together, so that an engine reads it once.

    In turn: the engine depends on nothing but the order of the groups, so that the same prompts give the same
    samples, bit for bit, whenever they are generated again with the same weights. Least loaded: whichever engine
    has the fewest requests. With `most_running`, an engine has at most so many requests, or one group, and the rest
    waits here; what runs beside what then depends on time, and so do the last bits of log-probabilities.

    Requests with a key stay together over time: in turn, the key's number decides; least loaded, the first engine
    that a key was given keeps it, and with it what it has read of an episode so far, until `forget`.

    An engine that dies is left out, and what it had not delivered is dealt to the others; a request's seed alone
    decides what is sampled, so the answers are those it would have given. Each request is delivered once. The last
    engine's death is an error, as is any other failure of an engine.

    With a `store`, engines put answers there and deliver references. Whether those of an engine that dies are lost
    with it is the transport's matter.
    """

    def __init__(
        self,
        engines: WorkerGroup,
        waiter: Waiter,
        notify: Callable[[str], None],
        order: Order = "in turn",
        most_running: int | None = None,
        interval_s: float = YIELD_INTERVAL_S,
        store: AnswerStore | None = None,
    ) -> None:
        self.engines, self.waiter, self.notify = engines, waiter, notify
        self.order, self.most_running, self.interval_s, self.store = order, most_running, interval_s, store
        self._dealt = 0
        self._homes: dict[int, int] = {}
        self._load: Counter[int] = Counter()
        self._running: dict[str, tuple[int, GenerationRequest]] = {}
        self._waiting: deque[tuple[int | None, list[GenerationRequest]]] = deque()

    def submit(self, groups: Sequence[Sequence[GenerationRequest]], keys: Sequence[int] | None = None) -> list[Call]:
        """Begin what there is room for; the rest follows from `take`. `keys`, where given, are one for each group."""
        for position, group in enumerate(groups):
            self._waiting.append((self._owner(None if keys is None else keys[position]), list(group)))
        return self._begin()

    def forget(self, key: int) -> None:
        """Nothing more comes with this key."""
        self._homes.pop(key, None)

    def recall(self) -> list[GenerationRequest]:
        """Requests that no engine has begun; they are not waiting any more."""
        waiting = [request for _owner, group in self._waiting for request in group]
        self._waiting.clear()
        return waiting

    def take(self, call: Call) -> Progress:
        """What a call that `generates` has finished since it was last asked.

        Raises:
            WorkerDied: the last engine died.
            RollError: an engine's own error.
        """
        try:
            finished = self.waiter.take(call)
        except WorkerDied as error:
            return Progress(is_over=True, begun=self.lost(call.worker.context.rank, error))
        if finished is None:
            return Progress(is_over=True)
        for completion in finished:
            rank, _request = self._running.pop(completion.request_id)
            self._load[rank] -= 1
        return Progress(finished, begun=self._begin())

    def lost(self, rank: int, error: WorkerDied) -> list[Call]:
        """Deal a dead engine's requests to the others; the calls begun for them.

        Raises:
            WorkerDied: there are no others.
        """
        is_news = rank not in self.engines.lost
        self.engines.lost.add(rank)
        if not self._alive():
            raise error
        orphans = [request for owner, request in self._running.values() if owner == rank]
        for request in orphans:
            del self._running[request.request_id]
        self._load[rank] = 0
        self._homes = {key: home for key, home in self._homes.items() if home != rank}
        kept = [(None if owner == rank else owner, group) for owner, group in self._waiting]
        self._waiting = deque([*((None, group) for group in _by_prompt(orphans)), *kept])
        if orphans or is_news:
            self.notify(
                f"{error}\n  its {len(orphans)} unfinished answers are made by the other {self.engines.role} engines;"
                " it is started again before the next weights are sent"
            )
        return self._begin()

    def _alive(self) -> list[int]:
        return [rank for rank in range(len(self.engines)) if rank not in self.engines.lost]

    def _owner(self, key: int | None) -> int | None:
        alive = self._alive()
        if self.order == "in turn":
            if key is None:
                key, self._dealt = self._dealt, self._dealt + 1
            return alive[key % len(alive)]
        if key is None:
            return None
        if self._homes.get(key) not in alive:
            homes = Counter(self._homes.values())
            self._homes[key] = min(alive, key=lambda rank: (homes[rank], self._load[rank]))
        return self._homes[key]

    def _begin(self) -> list[Call]:
        alive = self._alive()
        shares: dict[int, list[GenerationRequest]] = {}
        still_waiting: deque[tuple[int | None, list[GenerationRequest]]] = deque()
        for owner, group in self._waiting:
            rank = min(alive, key=self._load.__getitem__) if owner is None or owner not in alive else owner
            if not self._has_room(rank, len(group)):
                still_waiting.append((owner, group))
                continue
            shares.setdefault(rank, []).extend(group)
            self._load[rank] += len(group)
            self._running |= {request.request_id: (rank, request) for request in group}
        self._waiting = still_waiting
        return [self._call(rank, share) for rank, share in sorted(shares.items())]

    def _call(self, rank: int, share: list[GenerationRequest]) -> Call:
        if self.store is None:
            return self.engines.submit_to(rank, "generate", share, self.interval_s)
        store = self.store
        arguments = (share, self.interval_s, store.rows, store.folder, store.has_images)
        return self.engines.submit_to(rank, "generate_rows", *arguments)

    def _has_room(self, rank: int, count: int) -> bool:
        load = self._load[rank]
        return self.most_running is None or load == 0 or load + count <= self.most_running


def _by_prompt(requests: Sequence[GenerationRequest]) -> list[list[GenerationRequest]]:
    groups: dict[object, list[GenerationRequest]] = {}
    for request in requests:
        groups.setdefault((request.group, request.prompt_ids), []).append(request)
    return list(groups.values())
