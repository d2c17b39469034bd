"""Prompts answered and scored while others train: begun as long as no more than a bound are open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_core.cluster.calls import Call
from roll_core.data.answers import RemoteCompletion, rows_of
from roll_core.data.prompts import PromptDataset
from roll_core.data.sampler import PromptSampler
from roll_core.errors import CheckpointError
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rollout.answer_shelf import AnswerShelf
from roll_core.rollout.engine_flow import Account, Ending, EngineFlow
from roll_core.rollout.prompt_queue import ROW, Answer, OpenPrompt, with_tokens
from roll_core.rollout.sample import Sample, images_of
from roll_core.rollout.scheduler import RolloutScheduler


class RolloutFlow(EngineFlow[OpenPrompt]):
    """Keeps up to `room` prompts open: on their way through engines and rewards, or waiting for a batch.

    With a `shelf`, what is sampled stays there, also of answers that are interrupted: engines go on with what they
    read there. What a checkpoint must hold of it is read when one is written.
    """

    def __init__(
        self,
        scheduler: RolloutScheduler,
        dataset: PromptDataset,
        sampler: PromptSampler,
        keeps: Callable[[Sequence[Sample]], bool],
        num_samples: int,
        params: SamplingParams,
        shelf: AnswerShelf | None = None,
    ) -> None:
        super().__init__(scheduler.engines, scheduler.waiter, scheduler.router("least loaded"))
        self.scheduler, self.dataset, self.sampler, self.keeps = scheduler, dataset, sampler, keeps
        self.num_samples, self.params, self.shelf = num_samples, params, shelf
        self.dropped: deque[list[Sample]] = deque(maxlen=256)
        self._drawn: deque[int] = deque()
        self._replace: deque[str] = deque()
        self._unscored: list[tuple[OpenPrompt, int]] = []
        self._oldest_told: int | None = None

    def weights_are(self, version: int) -> None:
        """As `EngineFlow.weights_are`; what is sampled from here on has a place of its own."""
        super().weights_are(version)
        if self.shelf is None:
            return
        with self.changed:
            begun = [version, *(one.first_version for one in self._open.values())]
            oldest = min(begun) if self._oldest_told is None else min(self._oldest_told, *begun)
            self.router.store = self.shelf.of_version(version, oldest)

    def end(self, one: OpenPrompt, ending: Ending) -> None:
        """A prompt leaves, and its answers are freed: at once, or after the step that trains on them."""
        super().end(one, ending)
        if self.shelf is not None:
            rows = rows_of(answer.so_far for answer in one.answers if answer.so_far is not None)
            if ending == "trained":
                self.shelf.lend(rows)
            else:
                self.shelf.free(rows)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is open, and what will be drawn next, as JSON data.

        Answers on a shelf are referred to, and kept there until this is called again; `as_json` reads them.
        """
        with self.changed:
            if self.shelf is not None:
                answers = [answer.so_far for one in self._open.values() for answer in one.answers]
                self.shelf.hold([answer.row for answer in answers if isinstance(answer, RemoteCompletion)])
                self._oldest_told = min((one.first_version for one in self._open.values()), default=None)
            return {
                "sampler": self.sampler.state_dict(),
                "drawn": list(self._drawn),
                "replace": list(self._replace),
                "account": {"drawn": self.account.drawn, "ended": dict(self.account.ended)},
                "open": [one.state() for one in self._open.values()],
            }

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state with the tokens that it refers to. Answers that a process took with it are to be sampled anew."""
        rows = [answer[ROW] for one in state.get("open", ()) for answer in one["answers"] if ROW in answer]
        if self.shelf is None or not rows:
            return state
        read = self.shelf.read(rows)
        if len(read) < len(rows):
            self.scheduler.rewards.notify(
                f"{len(rows) - len(read)} of {len(rows)} answers that were on their way are lost with the process that"
                " put them\n  the checkpoint keeps their prompts, and a run that goes on from it samples them anew"
            )
        opened = [{**one, "answers": [with_tokens(each, read) for each in one["answers"]]} for one in state["open"]]
        return {**state, "open": opened}

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
        self._unscored = [
            (one, position)
            for one in self._open.values()
            for position, answer in enumerate(one.answers)
            if answer.completion is not None and answer.score is None
        ]
        if self.shelf is not None:
            self._put_all(self.shelf)

    def _put_all(self, shelf: AnswerShelf) -> None:
        """Everything that a checkpoint brought goes into the transport."""
        there = [(one, answer) for one in self._open.values() for answer in one.answers if answer.so_far is not None]
        if not there:
            return
        requests = [
            GenerationRequest("", one.prompt.token_ids, self.params, 0, images=images_of(one.prompt))
            for one, _ in there
        ]
        completions = [answer.so_far for _, answer in there if answer.so_far is not None]
        put = shelf.put(completions, requests, [answer.text for _, answer in there])
        for (_, answer), completion in zip(there, put):
            answer.so_far, answer.text = completion, ""

    def _withdrawn(self, request: GenerationRequest) -> None:
        one, position = self._find(request.request_id)
        if one is not None:
            one.answers[position].is_running = False

    def _next_requests(self) -> list[list[GenerationRequest]]:
        """Requests of whole prompts: those that were interrupted, then new ones while there is room."""
        unscored, self._unscored = self._unscored, []
        self._score(unscored)
        groups = []
        for one in self._open.values():
            requests = one.requests(self.params, self.scheduler.seed)
            if requests:
                if any(answer.num_tokens for answer in one.answers):
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
        complete, replaced = [], []
        with self.changed:
            for part in finished:
                one, position = self._find(part.request_id)
                if one is None:
                    replaced.append(part)
                    continue
                earlier = one.answers[position].so_far
                if one.take(position, part, self.params.max_new_tokens):
                    complete.append((one, position))
                if one.answers[position].so_far is None:
                    replaced.append(part)
                elif earlier is not None:
                    replaced.append(earlier)
        if self.shelf is not None and replaced:
            self.shelf.free(rows_of(replaced))
        self._score(complete)

    def _score(self, complete: Sequence[tuple[OpenPrompt, int]]) -> None:
        """Have complete answers scored."""
        if not complete:
            return
        answers = [one.answers[position] for one, position in complete]
        completions = [answer.completion for answer in answers if answer.completion is not None]
        texts = self.scheduler.decode(completions)
        with self.changed:
            for answer, text in zip(answers, texts):
                answer.text = text
        prompts = {answer.request_id: one.prompt for answer, (one, _) in zip(completions, complete)}
        store = None if self.router.store is None else self.router.store.rows
        self._running += self.scheduler.score(completions, texts, prompts, store)

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
