"""The requests of SGLang's engine, by ids of our own: its aborts take every id that begins alike."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roll_core.errors import EngineFailed, RollError
from roll_core.inference.base import Completion, FinishReason, GenerationRequest
from roll_core.inference.open_requests import OpenRequests
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


class Ledger(OpenRequests[Open]):
    """The requests that have not ended, by our ids too; each is closed by a completion or by an error."""

    def __init__(self) -> None:
        super().__init__()
        self._rids = itertools.count()
        # Guarded by `changed`.
        self._by_rid: dict[str, Open] = {}

    def submit(
        self, requests: Sequence[GenerationRequest], may_run: Callable[[], None]
    ) -> tuple[GenerateCall, list[Open]]:
        """Open requests."""
        with self.changed:
            call, opened = self.open(requests, may_run, lambda *given: Open(f"{next(self._rids):016x}", *given))
            self._by_rid |= {one.rid: one for one in opened}
        return call, opened

    def chosen(self, request_ids: Sequence[str] | None) -> list[Open]:
        """Those of the named requests that have not ended, marked as aborted; all of them for None."""
        found = self.named(request_ids)
        for one in found:
            one.is_aborted = True
        return found

    def find(self, rid: str) -> Open | None:
        """The request with an id of the ledger's, unless it has ended."""
        with self.changed:
            return self._by_rid.get(rid)

    def reply(self, one: Open, reply: Completion | EngineFailed) -> None:
        """A request ended; its call gets the reply."""
        with self.changed:
            if not self.close(one):
                return
            del self._by_rid[one.rid]
        if isinstance(reply, Completion):
            one.finish_reason = reply.finish_reason
        one.call.replies.put([reply] if isinstance(reply, Completion) else reply)
        one.ended.set()

    def fail(self, why: RollError) -> None:
        """The engine has ended: what is open fails."""
        self.end(why)
        failed = why if isinstance(why, EngineFailed) else EngineFailed(str(why))
        for one in self.named(None):
            self.reply(one, failed)
