"""The requests of an engine that have not ended, and who may change the engine when."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference.base import Completion, FinishReason, GenerationRequest
from roll_core.inference.running import GenerateCall


@dataclass(eq=False)
class Open:
    """A request that was handed to the engine, under an id of the ledger's own."""

    rid: str
    request: GenerationRequest
    call: GenerateCall
    ended: threading.Event = field(default_factory=threading.Event)
    is_aborted: bool = False
    finish_reason: FinishReason | None = None


class Ledger:
    """Every request is opened once and closed once, by a completion or by an error."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._open: dict[str, Open] = {}
        self._by_rid: dict[str, Open] = {}
        self._is_paused = False
        self._over: Exception | None = None
        self._rids = itertools.count()

    def open(
        self, requests: Sequence[GenerationRequest], may_run: Callable[[], None]
    ) -> tuple[GenerateCall, list[Open]]:
        """Note requests, once nothing is being changed.

        Raises:
            Whatever `may_run` raises, or the engine's end; BadRequest: an id is taken. Then none is noted.
        """
        call = GenerateCall([request.request_id for request in requests])
        with self._changed:
            self._changed.wait_for(lambda: not self._is_paused)
            self._refuse_if_over()
            may_run()
            twice = [r.request_id for r in requests if r.request_id in self._open]
            twice += [name for name, count in Counter(r.request_id for r in requests).items() if count > 1]
            if twice:
                raise BadRequest(f"request ids must be unique among running requests: {', '.join(sorted(twice))}")
            opened = [Open(f"{next(self._rids):016x}", request, call) for request in requests]
            self._open |= {one.request.request_id: one for one in opened}
            self._by_rid |= {one.rid: one for one in opened}
        return call, opened

    def chosen(self, request_ids: Sequence[str] | None) -> list[Open]:
        """Those of the named requests that have not ended, marked as aborted; all of them for None."""
        with self._changed:
            names = list(self._open) if request_ids is None else list(dict.fromkeys(request_ids))
            found = [self._open[name] for name in names if name in self._open]
            for one in found:
                one.is_aborted = True
        return found

    def find(self, rid: str) -> Open | None:
        """The request with an id of the ledger's, unless it has ended."""
        with self._changed:
            return self._by_rid.get(rid)

    def close(self, one: Open, reply: Completion | EngineFailed) -> None:
        """A request ended; its call gets the reply."""
        with self._changed:
            if self._by_rid.pop(one.rid, None) is None:
                return
            del self._open[one.request.request_id]
        if isinstance(reply, Completion):
            one.finish_reason = reply.finish_reason
        one.call.replies.put([reply] if isinstance(reply, Completion) else reply)
        one.ended.set()

    def end(self, over: Exception, failed: EngineFailed | None = None) -> None:
        """From now on nothing is opened; what is open fails."""
        with self._changed:
            if self._over is None:
                self._over = over
            left = list(self._by_rid.values())
        for one in left:
            self.close(one, failed or EngineFailed(str(over)))

    @contextmanager
    def paused(self, action: str) -> Iterator[None]:
        """Nothing runs in the block. Calls of `open` wait for its end.

        Raises:
            IllegalOrder: requests are running, or another such block is.
        """
        with self._changed:
            self._refuse_if_over()
            if self._is_paused:
                raise IllegalOrder(f"cannot {action} while the engine is being changed by another call")
            if self._open:
                count = len(self._open)
                raise IllegalOrder(
                    f"cannot {action} while {count} request{'s are' if count > 1 else ' is'} running: the cached keys "
                    "and values of a request belong to the weights that made them\n  try: wait for them, or abort first"
                )
            self._is_paused = True
        try:
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()

    def _refuse_if_over(self) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))
