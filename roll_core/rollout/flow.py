"""Prompts answered and scored while others train: begun as long as no more than a bound are open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.data.prompts import PromptDataset
from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.engine_flow import Account, EngineFlow
from roll_core.rollout.prompt_queue import Answer, OpenPrompt
from roll_core.rollout.sample import Sample
from roll_core.rollout.scheduler import RolloutScheduler


class RolloutFlow(EngineFlow[OpenPrompt]):
    """Keeps up to `room` prompts open: on their way through engines and rewards, or waiting for a batch."""

    def __init__(
        self,
        scheduler: RolloutScheduler,
        dataset: PromptDataset,
        sampler: PromptSampler,
        keeps: Callable[[Sequence[Sample]], bool],
        num_samples: int,
        params: SamplingParams,
    ) -> None:
        super().__init__(scheduler.engines, scheduler.waiter, scheduler.router("least loaded"))
        self.scheduler, self.dataset, self.sampler, self.keeps = scheduler, dataset, sampler, keeps
        self.num_samples, self.params = num_samples, params
        self.dropped: deque[list[Sample]] = deque(maxlen=256)
        self._drawn: deque[int] = deque()
        self._replace: deque[str] = deque()

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

    def _withdrawn(self, request: GenerationRequest) -> None:
        one, position = self._find(request.request_id)
        if one is not None:
            one.answers[position].is_running = False

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

    def _ended(self, call: Call) -> None:
        [result] = self.scheduler.waiter.wait([call])
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
