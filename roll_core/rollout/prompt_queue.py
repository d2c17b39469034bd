"""Prompts on their way: begun, answered in part, scored, and every one of them accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roll_core.data.answers import AnswerTokens, RemoteCompletion, joined, rest_of
from roll_core.data.prompts import Prompt
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.rewards import Score, Status
from roll_core.rollout.sample import Sample, images_of
from roll_core.rollout.seeds import seed_of

ROW = "row"
"""Where the state of an answer has a reference in the place of tokens."""


@dataclass
class Answer:
    """One response to a prompt, as far as it is. An abort keeps what there is; the next attempt goes on from there.

    What there is, `so_far`, may have its tokens in a transport.
    """

    so_far: Completion | None = None
    attempts: int = 0
    text: str = ""
    score: Score | None = None
    is_running: bool = False

    @property
    def num_tokens(self) -> int:
        """How many tokens there are."""
        return 0 if self.so_far is None else self.so_far.num_tokens

    @property
    def completion(self) -> Completion | None:
        """The response, once it is complete."""
        return None if self.so_far is None or self.so_far.finish_reason == "abort" else self.so_far

    def take(self, part: Completion, max_new_tokens: int) -> bool:
        """Add what an engine made; whether the response is complete now."""
        self.is_running = False
        self.attempts += 1
        whole = joined(self.so_far, part, max_new_tokens)
        self.so_far = whole if whole.num_tokens or whole.finish_reason != "abort" else None
        return self.completion is not None

    def rest_of(self, request: GenerationRequest) -> GenerationRequest:
        """The request for what is missing."""
        return rest_of(self.so_far, request)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it: JSON data, with a reference to tokens that are in a transport."""
        so_far = self.so_far
        state: dict[str, Any] = {ROW: so_far.row} if isinstance(so_far, RemoteCompletion) else _tokens(so_far)
        state["attempts"] = self.attempts
        if self.completion is not None:
            state |= {
                "finish_reason": self.completion.finish_reason,
                "weight_version": self.completion.weight_version,
                "request_id": self.completion.request_id,
                "text": self.text,
            }
        if self.score is not None:
            state["score"] = asdict(self.score) | {"status": self.score.status.value}
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Answer:
        """As it was when the state was taken, with its tokens."""
        made = cls(attempts=int(state["attempts"]), text=state.get("text", ""))
        name, reason = state.get("request_id", ""), state.get("finish_reason", "abort")
        ids, log_probs = tuple(state["token_ids"]), tuple(state["log_probs"])
        if ids or reason != "abort":
            made.so_far = Completion(name, ids, log_probs, reason, int(state.get("weight_version", 0)))
        if "score" in state:
            made.score = Score(**(state["score"] | {"status": Status(state["score"]["status"])}))
        return made


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
            name, group = f"async/{self.number}/{position}/{answer.attempts}", f"async/{self.number}"
            request = GenerationRequest(name, self.prompt.token_ids, params, seed, group, images)
            made.append(answer.rest_of(request))
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
        """What a checkpoint holds of it, as `Answer.state`."""
        return {
            "number": self.number,
            "index": self.index,
            "id": self.prompt.row.id,
            "first_version": self.first_version,
            "answers": [answer.state() for answer in self.answers],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], prompt: Prompt) -> OpenPrompt:
        """As it was when the state was taken; what was running then is to be requested again."""
        answers = [Answer.from_state(each) for each in state["answers"]]
        return cls(int(state["number"]), int(state["index"]), prompt, int(state["first_version"]), answers)


def _tokens(answer: Completion | None) -> dict[str, Any]:
    ids, log_probs = ((), ()) if answer is None else (answer.token_ids, answer.log_probs)
    return {"token_ids": list(ids), "log_probs": list(log_probs)}


def with_tokens(state: Mapping[str, Any], read: Mapping[str, AnswerTokens]) -> dict[str, Any]:
    """An answer's state as JSON data: its tokens by the key of its row. One that was lost is to be sampled anew."""
    if ROW not in state:
        return dict(state)
    found = read.get(state[ROW].keys[0])
    if found is None:
        return {"token_ids": [], "log_probs": [], "attempts": state["attempts"]}
    whole = {name: value for name, value in state.items() if name != ROW}
    whole |= {"token_ids": list(found.token_ids), "log_probs": list(found.log_probs)}
    return whole | ({"text": found.text} if "text" in state else {})
