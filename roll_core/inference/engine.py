"""The engine of hf_infer: one thread that steps all running requests together, and the queue in front of it."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import torch

from roll_core.errors import BadRequest, EngineFailed, IllegalOrder
from roll_core.inference.base import Completion, GenerationRequest
from roll_core.inference.batch import Batch
from roll_core.inference.decoder import Decoder, Features
from roll_core.inference.open_requests import OpenRequests
from roll_core.inference.request_rules import check_request
from roll_core.inference.running import GenerateCall, PromptKey, Running
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
        self._requests: OpenRequests[Running] = OpenRequests()
        self._changed = self._requests.changed
        # Guarded by _changed; the batch itself belongs to the thread alone.
        self._waiting: deque[Running] = deque()
        self._is_busy = False
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

    def submit(
        self,
        requests: Sequence[GenerationRequest],
        may_run: Callable[[], None] = lambda: None,
        images: Mapping[str, Features] | None = None,
    ) -> GenerateCall:
        """Queue requests; they run whether or not their results are asked for. Waits for the end of `paused`.

        `images` holds what was read of those of a request, by its id.

        Raises:
            Whatever `may_run` raises, which is asked when nothing is being changed; then none is queued.
            BadRequest: one of them cannot be served; none is queued.
            EngineFailed: the engine broke down before.
        """
        prompts: dict[tuple[str, tuple[int, ...]], PromptKey] = {}

        def make(request: GenerationRequest, call: GenerateCall) -> Running:
            return self._checked(request, call, prompts, images or {})

        with self._changed:
            call, running = self._requests.open(requests, may_run, make)
            self._waiting.extend(running)
            self._changed.notify_all()
        return call

    def abort(self, request_ids: Sequence[str] | None = None) -> list[str]:
        """End requests where they stand, at once; returns the ids of those that were waiting or running."""
        with self._changed:
            aborted = self._requests.named(request_ids)
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
        with self._requests.paused(action):
            with self._changed:
                self._changed.wait_for(lambda: not self._is_busy)
                self._requests.refuse_if_over()
            yield

    def stop(self) -> None:
        """Abort what runs and end the thread."""
        self._requests.end(IllegalOrder("the engine has been stopped"))
        self.abort()
        self._thread.join()

    def _checked(
        self,
        request: GenerationRequest,
        call: GenerateCall,
        prompts: dict[tuple[str, tuple[int, ...]], PromptKey],
        images: Mapping[str, Features],
    ) -> Running:
        limits = [(self.limits.max_length, "the model reads"), (self.limits.max_cache_tokens, "the cache holds")]
        check_request(request, self.decoder.vocab_size, limits)
        pictures = images.get(request.request_id)
        if pictures is not None and not self.decoder.reads_images:
            raise BadRequest(f"request '{request.request_id}' has images, and the model reads none")
        key = PromptKey()
        if request.group:
            key = prompts.setdefault((request.group, request.prompt_ids), key)
        return Running(request, call, key, self.eos_ids, self._stop_strings(request), pictures)

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
                self._changed.wait_for(lambda: self._requests.over is not None or bool(self._waiting))
            self._is_busy = self._requests.over is None
            self._changed.notify_all()
            return self._is_busy

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
            self._requests.close(running)
            replies.setdefault(running.call, []).append(running.completion(self.weight_version))
        for call, completions in replies.items():
            call.replies.put(completions)

    def _fail(self, report: str) -> None:
        failed = EngineFailed(f"the engine broke down and must be started again\n{report.rstrip()}")
        with self._changed:
            self._requests.end(failed)
            lost = self._requests.named(None)
            for running in lost:
                self._requests.close(running)
            for call in dict.fromkeys(running.call for running in lost):
                call.replies.put(failed)
            self._waiting.clear()
            self._is_busy = False
            self._changed.notify_all()
