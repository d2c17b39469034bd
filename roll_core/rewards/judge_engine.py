"""A judge that is a model of its own: an engine in the reward worker's process, asked many questions at once.

What is asked, and what counts as a verdict, is that of `roll_core.rewards.llm_judge`. Nothing of a response is executed
here, so that no sample needs a process of its own.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from roll_core.errors import BadRequest
from roll_core.inference import Completion, GenerationRequest, InferStrategy, SamplingParams
from roll_core.rewards.base import RewardSample, Score, Status
from roll_core.rewards.chat_api import Reply
from roll_core.rewards.llm_judge import Question, judge_problems, no_reply, question_about, score_of

log = logging.getLogger(__name__)

DEADLINE_S = 150.0
"""Seconds without a single reply, where the config does not say."""
TRIES = 2
"""An engine that breaks down is started anew once for the same questions."""
GRACE_S = 10.0
"""What an aborted request may take to end."""


class JudgeText(Protocol):
    """From questions to tokens and back: the judge's own tokenizer and chat template."""

    stop_token_ids: tuple[int, ...]

    def encode(self, question: str) -> tuple[int, ...]:
        """Token ids of a dialogue that consists of a question."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a reply, without special tokens."""


class EngineJudge:
    """Judges samples with an engine that is started when first needed, and anew when it has broken down.

    Args:
        make_engine: makes an engine that is not started yet, and has weights of its own.
        text: the judge's tokenizer and template.
        params: how replies are sampled; each question has a seed that depends on nothing but the question.
        prompt: a text of `roll_core.rewards.judge_prompts.prompt_text`.
        name: of the judge, in messages.
        deadline_s: seconds without any reply after which the questions that are left are given up.
    """

    def __init__(
        self,
        make_engine: Callable[[], InferStrategy],
        text: JudgeText,
        params: SamplingParams,
        prompt: str,
        name: str,
        deadline_s: float = DEADLINE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self.make_engine, self.text, self.params, self.prompt = make_engine, text, params, prompt
        self.name, self.deadline_s, self.grace_s = name, deadline_s, grace_s
        self._engine: InferStrategy | None = None
        self._starting = threading.Lock()
        self._numbers = count()

    def self_test(self) -> list[str]:
        """Whether the judge answers, and tells a right answer from a wrong one."""
        return judge_problems(lambda sample: self.compute_rewards([sample])[0], self.name)

    def compute_rewards(self, samples: Sequence[RewardSample]) -> list[Score]:
        """Exactly one score per sample, in their order. May be called from several threads: the engine takes all."""
        asked = [question_about(self.prompt, sample) for sample in samples]
        questions = {place: each for place, each in enumerate(asked) if isinstance(each, Question)}
        scores = {place: each for place, each in enumerate(asked) if isinstance(each, Score)}
        reason = ""
        for number in range(1, TRIES + 1):
            left = {place: question for place, question in questions.items() if place not in scores}
            if not left:
                break
            engine = None
            try:
                engine = self._started()
                scores |= self._ask(engine, left, number)
            # Whatever an engine raises, the run goes on: this is where its end is reported.
            except Exception as error:
                log.exception("the judge %s broke down", self.name)
                reason = f"the engine of judge {self.name} broke down: {type(error).__name__}: {error}"
                self._drop(engine)
        scores |= {place: no_reply(reason, TRIES) for place in questions if place not in scores}
        return [scores[place] for place in range(len(samples))]

    def close(self) -> None:
        """End the engine. May be called again."""
        self._drop(self._engine)

    def _started(self) -> InferStrategy:
        with self._starting:
            if self._engine is None:
                engine = self.make_engine()
                engine.start()
                self._engine = engine
            return self._engine

    def _drop(self, engine: InferStrategy | None) -> None:
        with self._starting:
            if engine is None or engine is not self._engine:
                return  # Another thread has dropped it, and perhaps started the next.
            self._engine = None
        try:
            engine.stop()
        # It is broken already; what it says of that stands in the log.
        except Exception:
            log.exception("the engine of judge %s could not be stopped", self.name)

    def _ask(self, engine: InferStrategy, questions: Mapping[int, Question], number: int) -> dict[int, Score]:
        """Scores of all questions, by their place."""
        requests = {place: self._request(question) for place, question in questions.items()}
        scores: dict[int, Score] = {}
        try:
            for place, completion in _Replies(engine, requests, self.deadline_s, self.grace_s):
                scores[place] = self._score(questions[place], requests[place], completion, number)
        except BadRequest as error:
            # An engine that refuses one request refuses all that came with it.
            if len(questions) == 1:
                reason = f"the judge {self.name} cannot be asked: {error}"
                return {place: no_reply(reason, number, Status.COULD_NOT_GRADE) for place in questions}
            places = [place for place in questions if place not in scores]
            for half in (places[: len(places) // 2], places[len(places) // 2 :]):
                scores |= self._ask(engine, {place: questions[place] for place in half}, number) if half else {}
            return scores
        late = f"the judge {self.name} gave no reply for {self.deadline_s:g} s"
        missing = {place: no_reply(late, number, Status.TIMEOUT) for place in questions if place not in scores}
        return scores | missing

    def _request(self, question: Question) -> GenerationRequest:
        digest = hashlib.blake2b(question.prompt.encode(), digest_size=8).digest()
        return GenerationRequest(
            request_id=f"judge/{next(self._numbers)}",
            prompt_ids=self.text.encode(question.prompt),
            params=self.params,
            seed=int.from_bytes(digest, "big") >> 1,
        )

    def _score(self, question: Question, request: GenerationRequest, completion: Completion, number: int) -> Score:
        reply = Reply(
            text=self.text.decode(completion.token_ids),
            is_cut_off=completion.finish_reason != "stop",
            num_requests=number,
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=len(completion.token_ids),
        )
        return score_of(question, reply, self.params.max_new_tokens)


@dataclass(frozen=True)
class _End:
    """An engine has nothing more to say: everything was said, or this happened."""

    error: BaseException | None = None


class _Replies:
    """Completions by the places of their requests, as they come; ends early when none comes for too long."""

    def __init__(
        self, engine: InferStrategy, requests: Mapping[int, GenerationRequest], deadline_s: float, grace_s: float
    ) -> None:
        self.engine, self.requests, self.deadline_s, self.grace_s = engine, requests, deadline_s, grace_s
        self._found: queue.SimpleQueue[Completion | _End] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[tuple[int, Completion]]:
        # A thread of its own, as an engine that hangs would never give this one back.
        threading.Thread(target=self._generate, name="judge", daemon=True).start()
        places = {request.request_id: place for place, request in self.requests.items()}
        while places:
            try:
                found = self._found.get(timeout=self.deadline_s)
            except queue.Empty:
                self._give_up(list(places))
                return
            if isinstance(found, _End):
                raise found.error or RuntimeError(f"the engine ended without {len(places)} of its replies")
            yield places.pop(found.request_id), found

    def _generate(self) -> None:
        try:
            for completion in self.engine.generate(list(self.requests.values())):
                self._found.put(completion)
        except BaseException as error:
            self._found.put(_End(error))
        else:
            self._found.put(_End())

    def _give_up(self, request_ids: list[str]) -> None:
        """Abort what is left, and wait for its end, so that it takes nothing from the next questions."""
        # An abort may hang with the engine.
        threading.Thread(target=self.engine.abort, args=(request_ids,), name="abort", daemon=True).start()
        end = time.monotonic() + self.grace_s
        while (left_s := end - time.monotonic()) > 0:
            try:
                if isinstance(self._found.get(timeout=left_s), _End):
                    return
            except queue.Empty:
                break
        raise TimeoutError(f"no reply for {self.deadline_s:g} s, and no end of it {self.grace_s:g} s after an abort")
