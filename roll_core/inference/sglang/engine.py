"""SGLang's engine, in a process of its own, behind calls of ordinary threads."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, Literal, get_args

from roll_core.errors import EngineFailed, IllegalOrder
from roll_core.inference.base import Completion, FinishReason, GenerationRequest
from roll_core.inference.manifests import Taken
from roll_core.inference.relay import Outlet, WorkerGone
from roll_core.inference.running import GenerateCall
from roll_core.inference.sglang.ledger import Ledger, Open
from roll_core.inference.sglang.messages import Abort, Answer, Call, Generate, NotStarted, Output, Refused, Started
from roll_core.inference.sglang.requests import sampling_of
from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)

FINISH_REASONS = get_args(FinishReason)
ENDED_EARLY = "SGLang ended an update of its weights before all of them had come"
ENDING_S = 60.0
"""SGLang waits as long for its own processes to free their devices."""


class EngineProcess:
    """One engine of SGLang: requests in, completions out, each exactly once.

    Args:
        arguments: SGLang's engine arguments.
        environment: variables its processes get beside this one's.
        eos_ids: tokens that end every completion.
        name: of this process, whose log has what SGLang prints.
        timeout_s: how long a call that changes the engine may take.

    Raises:
        EngineFailed: it cannot be started; the engine's own error, whose details are in this process's output.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        eos_ids: tuple[int, ...],
        name: str,
        timeout_s: float,
    ) -> None:
        self.eos_ids, self.name, self.timeout_s = eos_ids, name, timeout_s
        self.weight_version = -1
        self._ledger = Ledger()
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        self._is_stopping = False
        self._failed: EngineFailed | None = None
        self.process, self._connection = _launch(environment)
        self.max_length = self._meet(arguments)
        self._reader = threading.Thread(target=self._listen, name="sglang engine", daemon=True)
        self._reader.start()

    def _meet(self, arguments: Mapping[str, Any]) -> int:
        try:
            self._connection.send(dict(arguments))
            reply = self._connection.recv()
        except (EOFError, OSError):
            reply = NotStarted(self._ended())
        if isinstance(reply, Started):
            return reply.max_length
        self._connection.close()
        self._ended()
        raise EngineFailed(f"SGLang's engine did not start\n  cause: {reply.cause}{self._where}")

    @property
    def _where(self) -> str:
        return f"\n  SGLang's own report: in the log of {self.name}"

    def submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None] = lambda: None) -> GenerateCall:
        """Hand requests to the engine; they run whether or not their results are asked for. Waits for `paused`.

        Raises:
            Whatever `may_run` raises, which is asked when nothing is being changed; then none is queued.
            BadRequest: an id is taken; none is queued.
            EngineFailed: the engine died before.
        """
        call, opened = self._ledger.submit(requests, may_run)
        for one in opened:
            self._send(Generate(one.rid, one.request.prompt_ids, sampling_of(one.request, self.eos_ids)))
        return call

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests, each with what it has; returns the ids of those that ended by it, and not by themselves."""
        chosen = self._ledger.chosen(request_ids)
        if chosen:
            self._send(Abort(tuple(one.rid for one in chosen)))
        for one in chosen:
            if not one.ended.wait(self.timeout_s):
                raise EngineFailed(f"SGLang did not end an aborted request within {self.timeout_s:g} s{self._where}")
        return [one.request.request_id for one in chosen if one.finish_reason == "abort"]

    def paused(self, action: str) -> AbstractContextManager[None]:
        """Nothing runs in the block. Calls of `submit` wait for its end.

        Raises:
            IllegalOrder: requests are running, or another such block is.
        """
        return self._ledger.paused(action)

    def take_weights(self, receiver: WeightReceiver) -> list[Taken]:
        """Hand on an update; what each rank says of it.

        Raises:
            EngineFailed: the engine failed while it loaded.
        """
        calls: list[Future[Any]] = []

        def check() -> None:
            if calls[0].done():
                self._result(calls[0])
                raise EngineFailed(ENDED_EARLY)

        # One connection: the engine's process hands the tensors to all of its ranks.
        with Outlet(1, check, self.timeout_s) as outlet:
            calls.append(self._ask("load", outlet.address))
            try:
                outlet.send(receiver)
            except WorkerGone as error:
                self._result(calls[0])
                raise EngineFailed(ENDED_EARLY) from error
            answers = self._result(calls[0])
        return [Taken("a rank", digest, tuple(names)) for digest, names in answers]

    def call(self, action: Literal["flush", "release", "resume"]) -> None:
        """Let the engine do something while it is paused."""
        self._result(self._ask(action))

    def stop(self) -> None:
        """End the engine and its processes; what runs is aborted. Stopping twice is no fault."""
        if not self._is_stopping and self.process.poll() is None:
            self.abort()
        self._is_stopping = True
        self._ledger.fail(IllegalOrder("the engine has been stopped"))
        if self.process.poll() is None:
            _hang_up(self._connection)
        self._ended()
        self._reader.join()
        self._connection.close()

    def _send(self, message: Any) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            # The engine's process is gone: `_listen` fails whatever is open.
            log.debug("%s: %s was not delivered", self.name, type(message).__name__)

    def _ask(self, action: Literal["flush", "release", "resume", "load"], argument: str = "") -> Future[Any]:
        number, answer = next(self._numbers), Future[Any]()
        # In this order: either this sees that the engine died, or `_listen` sees the answer that is waited for.
        self._answers[number] = answer
        if self._failed is not None:
            raise self._failed
        self._send(Call(number, action, argument))
        return answer

    def _result(self, answer: Future[Any]) -> Any:
        try:
            return answer.result(self.timeout_s)
        except TimeoutError as error:
            raise EngineFailed(f"no answer from SGLang's engine within {self.timeout_s:g} s{self._where}") from error

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            failed = EngineFailed(f"the engine died and must be started again\n  cause: {self._ended()}{self._where}")
            self._failed = failed
            self._ledger.fail(failed)
            for answer in list(self._answers.values()):
                answer.set_exception(failed)

    def _take(self, message: Any) -> None:
        if isinstance(message, Answer):
            answer = self._answers.pop(message.number)
            if message.cause is None:
                answer.set_result(message.value)
            else:
                answer.set_exception(EngineFailed(f"SGLang's engine failed\n  cause: {message.cause}{self._where}"))
            return
        one = self._ledger.find(message.rid)
        assert one is not None, f"{message.rid} ended twice"
        self._ledger.reply(one, self._reply(one, message))

    def _reply(self, one: Open, message: Output | Refused) -> Completion | EngineFailed:
        name = one.request.request_id
        if isinstance(message, Refused):
            return EngineFailed(f"request '{name}' failed: {message.cause}")
        # SGLang aborts requests of its own accord, as when it has no room for them.
        if message.finish_type not in FINISH_REASONS or (message.finish_type == "abort" and not one.is_aborted):
            return EngineFailed(f"request '{name}' failed: SGLang ended it: {message.finish_type} {message.remark}")
        reason: FinishReason = message.finish_type  # type: ignore[assignment]
        return Completion(name, message.token_ids, message.log_probs, reason, self.weight_version)

    def _ended(self) -> str:
        """How the process ended; it gets some time for that."""
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            log.warning("%s: SGLang's process %d does not end by itself", self.name, self.process.pid)
            self.process.kill()
            self.process.wait()
        return f"process {self.process.pid} (SGLang's engine) ended with code {self.process.returncode}"


def _launch(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "roll_core.inference.sglang.host", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**environment, **os.environ, "PYTHONPATH": path},
        )
    return process, Connection(ours.detach())


def _hang_up(connection: Connection) -> None:
    """Close for reading and writing, which also ends a thread that reads, unlike `close`."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
