"""The engine of hf_infer: one thread that steps all running requests together, and the queue in front of it."""

from __future__ import annotations

import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch

from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference.base import Completion, GenerationRequest
from roll_core.inference.batch import Batch
from roll_core.inference.decoder import Decoder
from roll_core.inference.running import GenerateCall, PromptKey, Running
from roll_core.inference.sampling import check_params
from roll_core.inference.stopping import StopStrings, Tokenizer

ADMISSION_SHARE = 8
"""Places are filled when a share of 1/8 of them is free: reading prompts one by one costs a pass for each."""


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine. `max_length` is the longest text the model can read, None where it has no bound."""

    max_running_requests: int = 256
    max_batch_tokens: int = 8192
    max_cache_tokens: int | None = None
    max_length: int | None = None


class Engine:
    """Continuous batching over a decoder.

    Requests are admitted in the order they came, all of a call at once. What a batch is made of depends on the
    requests alone, never on time, so that the same calls, one after another, give the same bits.

    Args:
        eos_ids: tokens that end every completion.
        tokenizer: called when a request has stop strings for the first time.
    """

    def __init__(
        self,
        decoder: Decoder,
        limits: Limits,
        device: torch.device,
        eos_ids: Sequence[int] = (),
        tokenizer: Callable[[], Tokenizer] | None = None,
        weight_version: int = -1,
    ) -> None:
        self.limits, self.device = limits, device
        self.eos_ids, self.tokenizer = frozenset(eos_ids), tokenizer
        self.weight_version = weight_version
        self._changed = threading.Condition()
        # Guarded by _changed; the batch itself belongs to the thread alone.
        self._open: dict[str, Running] = {}
        self._waiting: deque[Running] = deque()
        self._is_paused = self._is_stopping = False
        self._is_busy = False
        self._failure: str | None = None
        self._batch = Batch(decoder, device)
        self._thread = threading.Thread(target=self._run, name="hf_infer engine", daemon=True)
        self._thread.start()

    @property
    def decoder(self) -> Decoder:
        """Who computes; may be changed only inside `paused`."""
        return self._batch.decoder

    @decoder.setter
    def decoder(self, decoder: Decoder) -> None:
        self._batch.decoder = decoder

    def submit(self, requests: Sequence[GenerationRequest], may_run: Callable[[], None] = lambda: None) -> GenerateCall:
        """Queue requests; they run whether or not their results are asked for. Waits for the end of `paused`.

        Raises:
            Whatever `may_run` raises, which is asked when nothing is being changed; then none is queued.
            BadRequest: one of them cannot be served; none is queued.
            EngineFailed: the engine broke down before.
        """
        call = GenerateCall([request.request_id for request in requests])
        prompts: dict[tuple[str, tuple[int, ...]], PromptKey] = {}
        with self._changed:
            self._changed.wait_for(lambda: not self._is_paused)
            self._refuse_if_over()
            may_run()
            running = [self._checked(request, call, prompts) for request in requests]
            twice = [r.request_id for r in requests if r.request_id in self._open]
            twice += [name for name, count in Counter(r.request_id for r in requests).items() if count > 1]
            if twice:
                raise BadRequest(f"request ids must be unique among running requests: {', '.join(sorted(twice))}")
            self._open |= {one.request.request_id: one for one in running}
            self._waiting.extend(running)
            self._changed.notify_all()
        return call

    def abandon(self, call: GenerateCall) -> None:
        """Abort what is left of a call that nobody waits for any more."""
        if call.open_ids:
            self.abort(list(call.open_ids))

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests where they stand, at once; returns the ids of those that were waiting or running."""
        with self._changed:
            chosen = list(self._open) if request_ids is None else list(dict.fromkeys(request_ids))
            aborted = [self._open[request_id] for request_id in chosen if request_id in self._open]
            for running in aborted:
                # The thread skips and removes it at its next step; a token being computed for it is dropped.
                running.finish_reason = "abort"
            self._deliver(aborted)
            self._waiting = deque(running for running in self._waiting if running.finish_reason is None)
        return [running.request.request_id for running in aborted]

    @contextmanager
    def paused(self, action: str) -> Iterator[None]:
        """Nothing runs in the block, and the cache is empty. Calls of `submit` wait for its end.

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
            self._changed.wait_for(lambda: not self._is_busy)
        try:
            self._refuse_if_over()
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()

    def stop(self) -> None:
        """Abort what runs and end the thread."""
        self.abort()
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise EngineFailed(self._failure)
        if self._is_stopping:
            raise IllegalOrder("the engine has been stopped")

    def _checked(
        self, request: GenerationRequest, call: GenerateCall, prompts: dict[tuple[str, tuple[int, ...]], PromptKey]
    ) -> Running:
        check_params(request)
        prompt, vocab_size = request.prompt_ids, self.decoder.vocab_size
        if not prompt:
            raise BadRequest(f"request '{request.request_id}' has an empty prompt")
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            wrong = next(token for token in prompt if not 0 <= token < vocab_size)
            raise BadRequest(
                f"request '{request.request_id}': prompt token {wrong} is outside the vocabulary (0..{vocab_size - 1})"
            )
        key = prompts.setdefault((request.group, prompt), PromptKey()) if request.group else PromptKey()
        running = Running(request, call, key, self.eos_ids, self._stop_strings(request))
        for limit, noun in (
            (self.limits.max_length, "the model reads"),
            (self.limits.max_cache_tokens, "the cache holds"),
        ):
            if limit is not None and running.most_tokens > limit:
                raise BadRequest(
                    f"request '{request.request_id}': prompt of {len(prompt)} and max_new_tokens "
                    f"{request.params.max_new_tokens} make {running.most_tokens} tokens; {noun} at most {limit}"
                )
        return running

    def _stop_strings(self, request: GenerationRequest) -> StopStrings | None:
        if not request.params.stop:
            return None
        if self.tokenizer is None:
            raise BadRequest(f"request '{request.request_id}' has stop strings, and this engine has no tokenizer")
        return StopStrings(request.params.stop, self.tokenizer())

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._wait_for_work():
                    self._iterate()
        except BaseException:
            self._fail(traceback.format_exc())

    def _wait_for_work(self) -> bool:
        with self._changed:
            if not self._batch.rows and not self._waiting:
                # An idle engine forgets its layout, so that what comes next does not depend on what was before.
                self._batch.clear()
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_stopping or bool(self._waiting))
            self._is_busy = not self._is_stopping
            self._changed.notify_all()
            return not self._is_stopping

    def _iterate(self) -> None:
        self._batch.remove_finished()
        admitted = self._admit()
        for chunk in self._batch.chunks(admitted, self.limits.max_batch_tokens):
            tokens, log_probs = self._batch.read(chunk)
            self._take(chunk, tokens, log_probs)
            self._batch.enter([running for running in chunk if running.finish_reason is None])
        if self._batch.rows:
            rows = list(self._batch.rows)
            tokens, log_probs = self._batch.step()
            self._take(rows, tokens, log_probs)

    def _admit(self) -> list[Running]:
        """The next waiting requests for which there is room, in order."""
        with self._changed:
            num_rows = len(self._batch.rows)
            free = self.limits.max_running_requests - num_rows
            wanted = min(len(self._waiting), max(1, self.limits.max_running_requests // ADMISSION_SHARE))
            if not self._waiting or free < wanted:
                return []
            admitted: list[Running] = []
            longest = max((running.most_tokens for running in self._batch.rows), default=0)
            bound = self.limits.max_cache_tokens
            while self._waiting and len(admitted) < free:
                longest = max(longest, self._waiting[0].most_tokens)
                if bound is not None and longest * (num_rows + len(admitted) + 1) > bound:
                    break
                admitted.append(self._waiting.popleft())
            # A group stands together in the queue, so only the next request can share a prompt with these.
            upcoming = {running.prompt_key for running in islice(self._waiting, 1)}
            self._batch.keep_shared({running.prompt_key for running in admitted}, upcoming)
            return admitted

    def _take(self, rows: Sequence[Running], tokens: list[int], log_probs: list[float]) -> None:
        """Give every row its token; deliver those that are done."""
        with self._changed:
            done = []
            for running, token, log_prob in zip(rows, tokens, log_probs):
                if running.finish_reason is None and running.append(token, log_prob):
                    done.append(running)
            self._deliver(done)

    def _deliver(self, done: Sequence[Running]) -> None:
        replies: dict[GenerateCall, list[Completion]] = {}
        for running in done:
            del self._open[running.request.request_id]
            replies.setdefault(running.call, []).append(running.completion(self.weight_version))
        for call, completions in replies.items():
            call.replies.put(completions)

    def _fail(self, report: str) -> None:
        with self._changed:
            self._failure = f"the engine broke down and must be started again\n{report.rstrip()}"
            for call in {running.call: None for running in self._open.values()}:
                call.replies.put(EngineFailed(self._failure))
            self._open.clear()
            self._waiting.clear()
            self._is_busy = False
            self._changed.notify_all()
