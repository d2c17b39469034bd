"""Generation that goes on while others train: a thread that keeps engines and rewards busy.

Prompts are begun as long as no more than a bound are open. When weights change, what runs is aborted, and goes on
from where it was under the new weights.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.data.prompts import PromptDataset
from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError, RollError, WorkerDied
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.prompt_queue import Account, Answer, Ending, OpenPrompt
from roll_core.rollout.sample import Sample
from roll_core.rollout.scheduler import RolloutScheduler

POLL_S = 0.05
"""How long the thread looks at what runs before it looks whether something else is asked of it."""
CLOSING_S = 10.0


class RolloutFlow:
    """Keeps up to `room` prompts open: on their way through engines and rewards, or waiting for a batch.

    Everything that changes is guarded by one lock. Only the thread talks to engines and rewards, and only while it is
    not paused.
    """

    def __init__(
        self,
        scheduler: RolloutScheduler,
        dataset: PromptDataset,
        sampler: PromptSampler,
        keeps: Callable[[Sequence[Sample]], bool],
        num_samples: int,
        params: SamplingParams,
    ) -> None:
        self.scheduler, self.dataset, self.sampler, self.keeps = scheduler, dataset, sampler, keeps
        self.num_samples, self.params = num_samples, params
        self.room = 0
        self.version = 0
        self.account = Account()
        self.resumed = 0
        self.dropped: deque[list[Sample]] = deque(maxlen=256)
        self.changed = threading.Condition()
        self._open: dict[int, OpenPrompt] = {}
        self._drawn: deque[int] = deque()
        self._replace: deque[str] = deque()
        self._running: list[Call] = []
        self._router = scheduler.router("least loaded")
        self._wants_pause, self._is_paused, self._is_closing = True, False, False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rollout", daemon=True)

    def start(self) -> None:
        """Start the thread, paused."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is open stays open."""
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSING_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing runs on any engine in the block; partial responses are kept. May be nested.

        Raises:
            RollError: whatever ended the thread.
        """
        with self.changed:
            before, self._wants_pause = self._wants_pause, True
            self.changed.notify_all()
            self.wait_for(lambda: self._is_paused)
        yield
        with self.changed:
            self._wants_pause = before
            self.changed.notify_all()

    def begin(self) -> None:
        """Engines have weights; from here on they may be used."""
        with self.changed:
            self._wants_pause = False
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait, holding the lock, until something is true or the thread has failed.

        Raises:
            RollError: whatever ended the thread.
        """
        self.changed.wait_for(lambda: self._failure is not None or condition())
        if self._failure is not None:
            raise self._failure

    def open_prompts(self) -> list[OpenPrompt]:
        """All open prompts in the order they were begun. To be called with the lock."""
        return list(self._open.values())

    def end(self, one: OpenPrompt, ending: Ending) -> None:
        """A prompt leaves. To be called with the lock."""
        del self._open[one.number]
        self.account.ended[ending] += 1
        self.changed.notify_all()

    def state_dict(self) -> dict[str, Any]:
        """Everything that is open, and what will be drawn next, as JSON data."""
        with self.changed:
            return {
                "sampler": self.sampler.state_dict(),
                "drawn": list(self._drawn),
                "replace": list(self._replace),
                "account": {"drawn": self.account.drawn, "ended": dict(self.account.ended)},
                "open": [one.state() for one in self._open.values()],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: nothing that was open is lost, and nothing is drawn twice.

        Raises:
            CheckpointError: the prompts are not those of the checkpoint.
        """
        if "open" not in state:
            self.sampler.load_state_dict(state)  # Of a run whose steps generated their own batches.
            return
        self.sampler.load_state_dict(state["sampler"])
        self._drawn, self._replace = deque(state["drawn"]), deque(state["replace"])
        self.account = Account(int(state["account"]["drawn"]), dict(state["account"]["ended"]))
        for each in state["open"]:
            if len(each["answers"]) != self.num_samples:
                raise CheckpointError(
                    f"the checkpoint holds prompts with {len(each['answers'])} responses each, and the config asks for"
                    f" {self.num_samples}\n  try: the checkpoint's num_return_sequences_in_group"
                )
            one = OpenPrompt.from_state(each, self.dataset[each["index"]])
            self._open[one.number] = one

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._work()
        except BaseException as error:
            with self.changed:
                self._failure = error
                self.changed.notify_all()

    def _work(self) -> None:
        with self.changed:
            generating = any(call.method == "generate" for call in self._running)
            self._is_paused = self._wants_pause and not generating
            self.changed.notify_all()
            if self._wants_pause:
                self._recall()
            requests = [] if self._wants_pause else self._next_requests()
            aborts = self._wants_pause and generating
            if not self._running and not requests:
                self.changed.wait(1.0)
                return
        if requests:
            self._running += self._router.submit(requests)
        if aborts and not any(call.method == "abort" for call in self._running):
            # Again and again: a call that had not begun when an abort came has not heard of it.
            self._running += self.scheduler.engines.submit("abort", None)
        for call in self._finished():
            self._handle(call)

    def _recall(self) -> None:
        for request in self._router.recall():
            one, position = self._find(request.request_id)
            if one is not None:
                one.answers[position].is_running = False

    def _finished(self) -> list[Call]:
        waiter, engines = self.scheduler.waiter, self.scheduler.engines
        try:
            return waiter.poll(self._running, POLL_S)
        except WorkerDied:
            if not engines.find_lost() or len(engines.lost) == len(engines):
                raise
            # It was to abort what it ran; its other calls say the same when they are taken.
            self._running = [
                call for call in self._running if call.method != "abort" or call.worker.context.rank not in engines.lost
            ]
            return []

    def _next_requests(self) -> list[list[GenerationRequest]]:
        """Requests of whole prompts: those that were interrupted, then new ones while there is room."""
        groups = []
        for one in self._open.values():
            requests = one.requests(self.params, self.scheduler.seed)
            if requests:
                if any(answer.token_ids for answer in one.answers):
                    self.resumed += 1
                else:
                    one.first_version = self.version
                groups.append(requests)
        while len(self._open) < self.room:
            one = self._begin()
            groups.append(one.requests(self.params, self.scheduler.seed))
        return groups

    def _begin(self) -> OpenPrompt:
        index = self._draw()
        answers = [Answer() for _ in range(self.num_samples)]
        one = OpenPrompt(self.account.drawn, index, self.dataset[index], self.version, answers)
        self.account.drawn += 1
        self._open[one.number] = one
        return one

    def _draw(self) -> int:
        held = {one.index for one in self._open.values()}
        if self._replace:
            return self.sampler.draw(self._replace.popleft(), 1, held)[0]
        if not self._drawn:
            self._drawn.extend(self.sampler.next_batch())
        return self._drawn.popleft()

    def _handle(self, call: Call) -> None:
        if call.method == "generate":
            progress = self._router.take(call)
            self._running += progress.begun
            if progress.is_over:
                self._running.remove(call)
            if progress.completions:
                self._answered(progress.completions)
            return
        self._running.remove(call)
        [result] = self.scheduler.waiter.wait([call])
        if call.method == "compute_rewards":
            self._scored(self.scheduler.rewards.collect(call, result))

    def _answered(self, finished: Sequence[Completion]) -> None:
        with self.changed:
            complete = []
            for part in finished:
                one, position = self._find(part.request_id)
                if one is not None and one.take(position, part, self.params.max_new_tokens):
                    complete.append((one, position))
        if not complete:
            return
        completions = [one.answers[position].completion for one, position in complete]
        texts = self.scheduler.decode([completion for completion in completions if completion is not None])
        samples = {}
        prompts = {}
        with self.changed:
            for (one, position), text, completion in zip(complete, texts, completions):
                assert completion is not None
                one.answers[position].text = text
                samples[completion.request_id] = (completion, text)
                prompts[completion.request_id] = one.prompt
        parts, words = zip(*samples.values())
        self._running += self.scheduler.score(list(parts), list(words), prompts)

    def _scored(self, scores: Mapping[str, Any]) -> None:
        with self.changed:
            for request_id, score in scores.items():
                one, position = self._find(request_id)
                if one is None:
                    continue
                one.answers[position].score = score
                if one.is_done and not self.keeps(one.samples(0)):
                    self.dropped.append(one.samples(0))
                    self._replace.append(one.prompt.domain)
                    self.end(one, "filtered")
            self.changed.notify_all()

    def _find(self, request_id: str) -> tuple[OpenPrompt | None, int]:
        _async, number, position, _attempt = request_id.split("/")
        return self._open.get(int(number)), int(position)


def check_account(flow: RolloutFlow) -> None:
    """Every prompt that was drawn was trained, dropped or is open. To be called with the lock.

    Raises:
        RollError: one was lost or counted twice; a fault of roll-core.
    """
    expected, found = flow.account.open_by_account(), len(flow.open_prompts())
    if expected != found:
        raise RollError(f"the account of prompts is wrong: {expected} must be open, {found} are ({flow.account})")
