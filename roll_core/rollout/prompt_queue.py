"""Prompts on their way: begun, answered in part, scored, and every one of them accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from roll_core.data.prompts import Prompt
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import Score, Status
from roll_core.rollout.sample import Sample, images_of
from roll_core.rollout.seeds import seed_of


@dataclass
class Answer:
    """One response to a prompt, as far as it is. An abort keeps what there is; the next attempt goes on from there."""

    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    attempts: int = 0
    completion: Completion | None = None
    text: str = ""
    score: Score | None = None
    is_running: bool = False

    def take(self, part: Completion, max_new_tokens: int) -> bool:
        """Add what an engine made; whether the response is complete now."""
        self.is_running = False
        self.attempts += 1
        self.token_ids += part.token_ids
        self.log_probs += part.log_probs
        if part.finish_reason == "abort" and len(self.token_ids) < max_new_tokens:
            return False
        reason = "length" if part.finish_reason == "abort" else part.finish_reason
        self.completion = Completion(part.request_id, self.token_ids, self.log_probs, reason, part.weight_version)
        return True


@dataclass
class OpenPrompt:
    """A prompt that was begun. `first_version` is that of the weights that sampled its first token."""

    number: int
    index: int
    prompt: Prompt
    first_version: int
    answers: list[Answer]

    @property
    def is_done(self) -> bool:
        """Whether every response is complete and scored."""
        return all(answer.score is not None for answer in self.answers)

    def requests(self, params: SamplingParams, run_seed: int) -> list[GenerationRequest]:
        """Requests for what is missing and not running; they count as running from here."""
        made = []
        images = images_of(self.prompt)
        for position, answer in enumerate(self.answers):
            if answer.completion is not None or answer.is_running:
                continue
            answer.is_running = True
            seed = seed_of(run_seed, "async", answer.attempts, self.prompt.row.id, self.number, position)
            made.append(
                GenerationRequest(
                    request_id=f"async/{self.number}/{position}/{answer.attempts}",
                    prompt_ids=(*self.prompt.token_ids, *answer.token_ids),
                    params=replace(params, max_new_tokens=params.max_new_tokens - len(answer.token_ids)),
                    seed=seed,
                    group="" if answer.token_ids else f"async/{self.number}",
                    images=images,
                )
            )
        return made

    def take(self, position: int, part: Completion, max_new_tokens: int) -> bool:
        """Add what an engine made; whether the response is complete now."""
        return self.answers[position].take(part, max_new_tokens)

    def samples(self, group: int) -> list[Sample]:
        """The scored responses, once all are done."""
        made = []
        for answer in self.answers:
            assert answer.completion is not None and answer.score is not None
            made.append(Sample(self.prompt, group, answer.completion, answer.text, answer.score, self.first_version))
        return made

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, as JSON data."""
        return {
            "number": self.number,
            "index": self.index,
            "id": self.prompt.row.id,
            "first_version": self.first_version,
            "answers": [_answer_state(answer) for answer in self.answers],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], prompt: Prompt) -> OpenPrompt:
        """As it was when the state was taken; what was running then is to be requested again."""
        answers = [_answer_from(each) for each in state["answers"]]
        return cls(int(state["number"]), int(state["index"]), prompt, int(state["first_version"]), answers)


def _answer_state(answer: Answer) -> dict[str, Any]:
    state: dict[str, Any] = {
        "token_ids": list(answer.token_ids),
        "log_probs": list(answer.log_probs),
        "attempts": answer.attempts,
    }
    if answer.completion is not None:
        completion = answer.completion
        state |= {
            "finish_reason": completion.finish_reason,
            "weight_version": completion.weight_version,
            "request_id": completion.request_id,
            "text": answer.text,
        }
    if answer.score is not None:
        state["score"] = asdict(answer.score) | {"status": answer.score.status.value}
    return state


def _answer_from(state: Mapping[str, Any]) -> Answer:
    tokens: Sequence[int] = state["token_ids"]
    answer = Answer(tuple(tokens), tuple(state["log_probs"]), int(state["attempts"]))
    if "finish_reason" in state:
        answer.completion = Completion(
            state["request_id"],
            answer.token_ids,
            answer.log_probs,
            state["finish_reason"],
            int(state["weight_version"]),
        )
        answer.text = state["text"]
    if "score" in state:
        answer.score = Score(**(state["score"] | {"status": Status(state["score"]["status"])}))
    return answer
