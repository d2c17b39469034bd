"""The process that owns an SGLang engine, for as long as the strategy's process holds the other end of its socket.

It is a process of its own because SGLang ends all children of the process it is in when it stops, ends that process
by a signal when one of its own has died, and sets its environment.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from roll_core.inference.relay import Inlet
from roll_core.inference.sglang.config import LOADER
from roll_core.inference.sglang.loader import REPORT
from roll_core.inference.sglang.messages import Abort, Answer, Call, Generate, NotStarted, Refused, Started
from roll_core.inference.sglang.requests import output_of
from roll_core.weights import digest_of
from roll_core.weights.packing import unpack

DISPATCH_S = 0.02
IDLE_S = 30.0
"""SGLang may take a moment after the last completion until it says that it is idle."""


class Host:
    """Obeys the strategy's messages, in the engine's own event loop."""

    def __init__(self, engine: Any, connection: Connection) -> None:
        self.engine, self.connection = engine, connection
        self.loop: asyncio.AbstractEventLoop = engine.loop
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._aborts: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Until the other end is closed."""
        threading.Thread(target=self._read, name="reads messages", daemon=True).start()
        self.connection.send(Started(int(self.engine.tokenizer_manager.context_len)))
        # Requests run as tasks meanwhile, and also in the calls of `_answer`, which run the loop themselves.
        while (message := self.loop.run_until_complete(self._inbox.get())) is not None:
            if isinstance(message, Generate):
                self._tasks[message.rid] = self.loop.create_task(self._complete(message))
            elif isinstance(message, Abort):
                self._abort(message)
            else:
                self.connection.send(self._answer(message))

    def _read(self) -> None:
        while True:
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                message = None
            self.loop.call_soon_threadsafe(self._inbox.put_nowait, message)
            if message is None:
                return

    async def _complete(self, message: Generate) -> None:
        reply: Any
        try:
            output = await self.engine.async_generate(
                input_ids=list(message.prompt_ids),
                sampling_params=message.sampling,
                return_logprob=True,
                rid=message.rid,
            )
            reply = output_of(message.rid, output)
        except Exception as error:
            reply = Refused(message.rid, f"{type(error).__name__}: {error}")
        del self._tasks[message.rid]
        self.connection.send(reply)

    def _abort(self, message: Abort) -> None:
        for rid in message.rids:
            task = self.loop.create_task(self._abort_one(rid))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)

    async def _abort_one(self, rid: str) -> None:
        manager = self.engine.tokenizer_manager
        while rid in self._tasks:
            state = manager.rid_to_state.get(rid)
            if state is not None and state.dispatched:
                manager.abort_request(rid=rid)
                return
            # Told before it has handed the request on, SGLang would lose the abort and take no second one.
            await asyncio.sleep(DISPATCH_S)

    def _answer(self, call: Call) -> Answer:
        try:
            return Answer(call.number, getattr(self, f"_{call.action}")(call.argument))
        except Exception as error:
            return Answer(call.number, cause=f"{type(error).__name__}: {error}")

    def _flush(self, _argument: str = "") -> None:
        """Drop what is cached. SGLang does so only when idle, which also tells that it is."""
        deadline = time.monotonic() + IDLE_S
        while not (said := self.engine.flush_cache()).success:
            if time.monotonic() > deadline:
                raise RuntimeError(f"SGLang did not drop its cache: {said.message}")
            time.sleep(DISPATCH_S)

    def _release(self, _argument: str) -> None:
        # Asked while it is not idle, SGLang's scheduler ends.
        self._flush()
        self.engine.release_memory_occupation()

    def _resume(self, _argument: str) -> None:
        self.engine.resume_memory_occupation()

    def _load(self, address: str) -> list[tuple[str, list[str]]]:
        """Take an update; each rank's digest of what came, and the parameters that got nothing."""
        self._flush()
        _confirm(self.engine.begin_weight_update())
        try:
            with Inlet(address) as inlet:
                version = inlet.version
                try:
                    self._load_buckets(inlet)
                finally:
                    # Also after an error, so that the next update begins afresh in every rank.
                    reports = self._reports()
        finally:
            _confirm(self.engine.end_weight_update())
        self._flush()
        return [
            (digest_of(version, [(name, tuple(shape)) for name, shape in report["taken"]]), report["left_out"])
            for report in reports
        ]

    def _load_buckets(self, inlet: Inlet) -> None:
        for path, entries in inlet.buckets():
            with Path(path).open("r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            inlet.opened()
            self._hand_on(unpack(entries, torch.frombuffer(mapped, dtype=torch.uint8)))

    def _hand_on(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
        _confirm(self.engine.update_weights_from_tensor(list(tensors), load_format=LOADER, flush_cache=False))

    def _reports(self) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="roll-weights-") as folder:
            self._hand_on([(REPORT, torch.tensor(list(folder.encode()), dtype=torch.uint8))])
            return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).iterdir())]


def _confirm(answer: tuple[bool, str]) -> None:
    success, message = answer
    if not success:
        raise RuntimeError(f"SGLang: {message}")


def main(descriptor: int) -> None:
    """Start the engine with the arguments that come first, and serve it."""
    connection = Connection(descriptor)
    arguments = connection.recv()
    try:
        from sglang.srt.entrypoints.engine import Engine

        engine = Engine(**arguments)
    except Exception as error:
        connection.send(NotStarted(f"{type(error).__name__}: {error}"))
        raise
    try:
        Host(engine, connection).run()
    finally:
        engine.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
