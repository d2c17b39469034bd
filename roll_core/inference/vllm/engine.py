"""vLLM's asynchronous engine behind calls of ordinary threads: its loop has a thread, its workers have processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, get_args

from roll_core.errors import EngineFailed, IllegalOrder
from roll_core.inference.base import Completion, FinishReason, GenerationRequest
from roll_core.inference.manifests import Taken
from roll_core.inference.open_requests import OpenRequests
from roll_core.inference.relay import Outlet, WorkerGone
from roll_core.inference.running import GenerateCall
from roll_core.inference.vllm.requests import check_prompt, log_probs_of, prompt_of, sampling_of
from roll_core.weights import WeightReceiver

log = logging.getLogger(__name__)

ENDED_EARLY = "vLLM ended an update of its weights before all of them had come"
ENDING_S = 10.0
FINISH_REASONS = get_args(FinishReason)
ABORT_AGAIN_S = 0.05
"""A request may be on its way into the engine when it is aborted, and the engine does not know it yet."""
ABORT_DEADLINE_S = 10.0
"""Requests that the engine has not ended by then, perhaps as it knows them by other names, are ended here."""


@dataclass(eq=False)
class _Open:
    request: GenerationRequest
    call: GenerateCall
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    finish_reason: FinishReason | None = None
    is_aborted: bool = False
    task: asyncio.Task[None] | None = None
    """Held here, as the loop keeps only weak references to its tasks."""


class AsyncEngine:
    """One engine of vLLM: requests in, completions out, each exactly once.

    Args:
        arguments: vLLM's engine arguments.
        eos_ids: tokens that end every completion.
        name: of this process, whose log has what vLLM prints.
        timeout_s: how long a call to its workers may take.

    Raises:
        EngineFailed: it cannot be started; the engine's own error, whose details are in this process's output.
    """

    def __init__(self, arguments: Mapping[str, Any], eos_ids: tuple[int, ...], name: str, timeout_s: float) -> None:
        self.eos_ids, self.name, self.timeout_s = eos_ids, name, timeout_s
        self.weight_version = -1
        self._requests: OpenRequests[_Open] = OpenRequests()
        before = set(multiprocessing.active_children())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm engine", daemon=True)
        self._thread.start()
        self._is_stopped = False
        try:
            self._engine = self._run(_start(arguments))
        except Exception as error:
            self._end_loop()
            raise EngineFailed(
                f"vLLM's engine did not start\n  cause: {type(error).__name__}: {error}{self._where}"
            ) from error
        self.processes = [child for child in multiprocessing.active_children() if child not in before]

    @property
    def _where(self) -> str:
        return f"\n  vLLM's own report: in the log of {self.name}"

    @property
    def max_length(self) -> int:
        """The longest text it reads, in tokens, prompt included."""
        return int(self._engine.vllm_config.model_config.max_model_len)

    def submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None] = lambda: None) -> GenerateCall:
        """Hand requests to the engine; they run whether or not their results are asked for. Waits for `paused`.

        Raises:
            Whatever `may_run` raises, which is asked when nothing is being changed; then none is queued.
            BadRequest: an id is taken; none is queued.
            EngineFailed: the engine died before.
        """
        call, opened = self._requests.open(requests, may_run, _Open)
        self._loop.call_soon_threadsafe(self._begin, opened)
        return call

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests, each with what it has; returns the ids of those that ended by it, and not by themselves."""
        # What ran in an engine that died fails by itself.
        opened = self._requests.named(request_ids) if self._requests.over is None else []
        return self._run(self._abort(opened)) if opened else []

    def paused(self, action: str) -> AbstractContextManager[None]:
        """Nothing runs in the block. Calls of `submit` wait for its end.

        Raises:
            IllegalOrder: requests are running, or another such block is.
        """
        return self._requests.paused(action)

    def take_weights(self, receiver: WeightReceiver, num_workers: int) -> list[Taken]:
        """Hand an update to the engine's workers; what each says of it.

        Raises:
            EngineFailed: a worker failed while it loaded.
        """
        calls: list[Future[Any]] = []

        def check() -> None:
            if calls[0].done():
                # It ended before its time: with an error, or without having asked for all buckets.
                self._answer(calls[0])
                raise EngineFailed(ENDED_EARLY)

        with Outlet(num_workers, check, self.timeout_s) as outlet:
            calls.append(self._schedule(self._engine.collective_rpc("roll_take_weights", args=(outlet.address,))))
            try:
                outlet.send(receiver)
            except WorkerGone as error:
                self._answer(calls[0])
                raise EngineFailed(ENDED_EARLY) from error
            answers = self._answer(calls[0])
        return [Taken(f"rank {rank}", digest, tuple(names)) for rank, (digest, names) in enumerate(answers)]

    def rpc(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of the workers returns, by rank."""
        answers: list[Any] = self._answer(self._schedule(self._engine.collective_rpc(method, args=arguments)))
        return answers

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call one of the engine's own coroutines."""
        return self._answer(self._schedule(getattr(self._engine, method)(*arguments, **options)))

    def stop(self) -> None:
        """End the engine and its processes; what runs is aborted."""
        if self._is_stopped:
            return
        self._is_stopped = True
        has_failed = self._requests.over is not None
        self._requests.end(IllegalOrder("the engine has been stopped"))
        if not has_failed:
            with contextlib.suppress(EngineFailed):
                self._run(self._abort(self._requests.named(None)))
        self._run(self._shut_down())
        self._end_loop()
        for process in self.processes:
            process.join(timeout=30)

    def _begin(self, opened: Sequence[_Open]) -> None:
        for one in opened:
            one.task = self._loop.create_task(self._complete(one))

    async def _complete(self, one: _Open) -> None:
        request, last = one.request, None
        try:
            if not one.is_aborted:
                prompt = prompt_of(request)
                sampling = sampling_of(request, self.eos_ids)
                async for output in self._engine.generate(prompt, sampling, request.request_id):
                    last = output
                if last is not None:
                    check_prompt(request, last.prompt_token_ids)
        except Exception as error:
            self._fail(one, error)
        except asyncio.CancelledError:
            if not one.is_aborted:
                raise
            self._deliver(one, None)
        else:
            self._deliver(one, last)
        finally:
            one.ended.set()

    def _deliver(self, one: _Open, last: Any | None) -> None:
        name = one.request.request_id
        if last is None:  # It was aborted before the engine had it.
            completion = Completion(name, (), (), "abort", self.weight_version)
        else:
            [output] = last.outputs
            if output.finish_reason not in FINISH_REASONS:
                self._fail(one, RuntimeError(f"vLLM ended it for the reason '{output.finish_reason}'"))
                return
            token_ids = tuple(output.token_ids)
            completion = Completion(name, token_ids, log_probs_of(output), output.finish_reason, self.weight_version)
        one.finish_reason = completion.finish_reason
        self._requests.close(one)
        one.call.replies.put([completion])

    def _fail(self, one: _Open, error: Exception) -> None:
        """A request that failed by itself ends its call; a dead engine ends all of them."""
        self._requests.close(one)
        if self._engine.errored and self._requests.over is None:
            cause = f"the engine died and must be started again\n  cause: {self._cause(error)}{self._where}"
            self._requests.end(EngineFailed(cause))
        over = self._requests.over
        text = str(over) if over else f"request '{one.request.request_id}' failed: {type(error).__name__}: {error}"
        failed = EngineFailed(text)
        failed.__cause__ = error
        one.call.replies.put(failed)

    def _cause(self, error: BaseException) -> str:
        if self._engine.errored:
            # Heard of through a closed pipe, some time before the process has ended: it waits for its own workers.
            for process in self.processes:
                process.join(ENDING_S)
        ended = [
            f"process {process.pid} ({process.name}) ended with code {process.exitcode}"
            for process in self.processes
            if process.exitcode is not None
        ]
        return "; ".join(ended) or f"{type(error).__name__}: {error}"

    async def _abort(self, opened: Sequence[_Open]) -> list[str]:
        for one in opened:
            one.is_aborted = True
        running, deadline = list(opened), self._loop.time() + ABORT_DEADLINE_S
        while running:
            if self._loop.time() > deadline:
                for one in running:
                    if one.task is not None:
                        one.task.cancel()
            try:
                await self._engine.abort([one.request.request_id for one in running])
            except Exception:
                # A dead engine has ended its requests already, or is about to.
                if not self._engine.errored:
                    raise
            await asyncio.wait([asyncio.create_task(one.ended.wait()) for one in running], timeout=ABORT_AGAIN_S)
            running = [one for one in running if not one.ended.is_set()]
        return [one.request.request_id for one in opened if one.finish_reason == "abort"]

    async def _shut_down(self) -> None:
        self._engine.shutdown()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _schedule(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._schedule(coroutine).result()

    def _answer(self, call: Future[Any]) -> Any:
        try:
            return call.result(self.timeout_s)
        except TimeoutError as error:
            raise EngineFailed(f"no answer from vLLM's workers within {self.timeout_s:g} s") from error
        except Exception as error:
            raise EngineFailed(f"vLLM's workers failed\n  cause: {self._cause(error)}{self._where}") from error

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _start(arguments: Mapping[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
