"""The requests of an engine that have not ended, and who may change the engine when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from roll_core.errors import BadRequest, IllegalOrder, RollError
from roll_core.inference.base import GenerationRequest
from roll_core.inference.running import GenerateCall


class OpenRequest(Protocol):
    """What an engine keeps of a request until it has ended."""

    @property
    def request(self) -> GenerationRequest: ...


Entry = TypeVar("Entry", bound=OpenRequest)


class OpenRequests(Generic[Entry]):
    """Every request is opened once and closed once; none is opened while the engine is being changed or after its end.

    `changed` guards what is here, and whatever the engine wants to change together with it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._by_id: dict[str, Entry] = {}
        self.is_paused = False
        """Whether the engine is being changed."""
        self.over: RollError | None = None
        """What ended the engine: a fault, or that it was stopped."""

    def __len__(self) -> int:
        return len(self._by_id)

    def open(
        self,
        requests: Sequence[GenerationRequest],
        may_run: Callable[[], None],
        make: Callable[[GenerationRequest, GenerateCall], Entry],
    ) -> tuple[GenerateCall, list[Entry]]:
        """Note requests, once nothing is being changed.

        Raises:
            Whatever `may_run` and `make` raise, or what ended the engine; then none is noted.
            BadRequest: an id is taken; none is noted.
        """
        call = GenerateCall([request.request_id for request in requests])
        with self.changed:
            self.changed.wait_for(lambda: not self.is_paused)
            self.refuse_if_over()
            may_run()
            opened = [make(request, call) for request in requests]
            twice = [request.request_id for request in requests if request.request_id in self._by_id]
            twice += [name for name, count in Counter(r.request_id for r in requests).items() if count > 1]
            if twice:
                raise BadRequest(f"request ids must be unique among running requests: {', '.join(sorted(twice))}")
            self._by_id |= {one.request.request_id: one for one in opened}
        return call, opened

    def named(self, request_ids: Sequence[str] | None) -> list[Entry]:
        """Those of the named requests that have not ended; all of them for None."""
        with self.changed:
            names = list(self._by_id) if request_ids is None else dict.fromkeys(request_ids)
            return [self._by_id[name] for name in names if name in self._by_id]

    def close(self, one: Entry) -> bool:
        """A request has ended; False where it was closed before."""
        name = one.request.request_id
        with self.changed:
            if self._by_id.get(name) is not one:
                return False
            del self._by_id[name]
        return True

    def end(self, why: RollError) -> None:
        """From now on nothing is opened. What is open stays so until it is closed. The first reason stands."""
        with self.changed:
            self.over = self.over or why
            self.changed.notify_all()

    @contextmanager
    def paused(self, action: str) -> Iterator[None]:
        """No request is open in the block. Calls of `open` wait for its end.

        Raises:
            IllegalOrder: requests are open, or another such block is.
        """
        with self.changed:
            self.refuse_if_over()
            if self.is_paused:
                raise IllegalOrder(f"cannot {action} while the engine is being changed by another call")
            if self._by_id:
                count = len(self._by_id)
                raise IllegalOrder(
                    f"cannot {action} while {count} request{'s are' if count > 1 else ' is'} running: the cached keys "
                    "and values of a request belong to the weights that made them\n  try: wait for them, or abort first"
                )
            self.is_paused = True
        try:
            yield
        finally:
            with self.changed:
                self.is_paused = False
                self.changed.notify_all()

    def refuse_if_over(self) -> None:
        """Raise what ended the engine, if it has ended."""
        if self.over is not None:
            # Another one each time: an exception collects the tracebacks of everyone who raises it.
            raise type(self.over)(str(self.over))
