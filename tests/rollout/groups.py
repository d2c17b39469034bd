"""A worker group that answers in this process, at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.cluster.spec import WorkerSpec
from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext


class Group:
    """Methods of a subclass get the rank first; what was asked of whom is in `asked`."""

    def __init__(self, role: str, size: int) -> None:
        self.role, self.size = role, size
        self.asked: list[tuple[int, str, Any]] = []
        self.watches: list[Call] = []
        self.lost: set[int] = set()
        self.dead: set[int] = set()
        self.restarts = 0

    def __len__(self) -> int:
        return self.size

    def submit(self, method: str, *arguments: Any) -> list[Call]:
        return [self.submit_to(rank, method, *arguments) for rank in range(self.size) if rank not in self.lost]

    def find_lost(self) -> set[int]:
        self.lost |= self.dead
        return self.lost

    def revive(self) -> list[int]:
        ranks = sorted(self.lost)
        self.restarts += len(ranks)
        self.lost.clear()
        self.dead.clear()
        return ranks

    def submit_to(self, rank: int, method: str, *arguments: Any) -> Call:
        self.asked.append((rank, method, arguments[0] if arguments else None))
        context = WorkerContext(role=self.role, rank=rank, world_size=self.size)
        spec = WorkerSpec(context, WorkerConfig(), "", "", {}, Path(), Path())
        return Call(spec, method, getattr(self, method)(rank, *arguments))

    def submit_split(self, rank: int, method: str, *arguments: Any) -> tuple[Call, Call]:
        call = self.submit_to(rank, method, *arguments)
        first, second = (Call(call.worker, method, result) for result in call.ref)
        return first, second

    def scatter(self, method: str, parts: Sequence[Any], *arguments: Any) -> list[Call]:
        return [self.submit_to(rank, method, part, *arguments) for rank, part in enumerate(parts)]


class Waiter:
    """Everything is there already; a call whose result is an error raises it."""

    def wait(self, calls: list[Call], timeout_s: float | None = None) -> list[Any]:
        return [call.ref for call in calls]

    def ready(self, calls: list[Call]) -> list[Call]:
        return list(calls)

    def take(self, stream: Call) -> Any | None:
        return next(stream.ref, None)

    def unwatch_peers(self, group: Group) -> None:
        assert group.watches == []
