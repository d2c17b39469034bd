"""A request on its way through an engine, and the call that waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import torch

from roll_core.inference.base import Completion, FinishReason, GenerationRequest
from roll_core.inference.decoder import Features
from roll_core.inference.sampling import draws
from roll_core.inference.stopping import StopStrings

Reply = list[Completion] | BaseException
"""What a waiting call gets: completions that finished together, or why there will be none."""


class GenerateCall:
    """One call of `generate`: which of its requests have not come back, and where completions are put."""

    def __init__(self, request_ids: list[str]) -> None:
        self.open_ids = dict.fromkeys(request_ids)
        self.replies: SimpleQueue[Reply] = SimpleQueue()

    def results(self) -> Iterator[Completion]:
        """Completions as they come; raises whatever ended the engine."""
        while self.open_ids:
            reply = self.replies.get()
            if isinstance(reply, BaseException):
                raise reply
            for completion in reply:
                del self.open_ids[completion.request_id]
                yield completion


class PromptKey:
    """The same object for requests of a call that share the reading of their prompt."""


class Running:
    """A request, waiting or running, with what has been generated for it so far."""

    def __init__(
        self,
        request: GenerationRequest,
        call: GenerateCall,
        prompt_key: PromptKey,
        eos_ids: frozenset[int],
        stops: StopStrings | None,
        images: Features | None = None,
    ) -> None:
        self.request, self.call, self.prompt_key, self.stops = request, call, prompt_key, stops
        self.images = images
        self.params = request.params
        self.draws = draws(request.seed)
        self.end_ids = eos_ids | frozenset(request.params.stop_token_ids)
        self.token_ids: list[int] = []
        self.log_probs: list[float] = []
        self.finish_reason: FinishReason | None = None
        self.seen: torch.Tensor | None = None

    @property
    def most_tokens(self) -> int:
        """Length it can reach, prompt included."""
        return len(self.request.prompt_ids) + self.params.max_new_tokens

    def watch_tokens(self, vocab_size: int, device: torch.device) -> None:
        """Begin to note which tokens have occurred, where a penalty asks for it."""
        if self.params.repetition_penalty != 1.0:
            self.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self.seen[list(self.request.prompt_ids)] = True

    def append(self, token_id: int, log_prob: float) -> bool:
        """Take a sampled token; True where it ends the completion."""
        self.token_ids.append(token_id)
        self.log_probs.append(log_prob)
        if self.seen is not None:
            self.seen[token_id] = True
        if token_id in self.end_ids or (self.stops is not None and self.stops.ends(self.token_ids)):
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.params.max_new_tokens:
            self.finish_reason = "length"
        return self.finish_reason is not None

    def completion(self, weight_version: int) -> Completion:
        """What has been generated, final."""
        assert self.finish_reason is not None
        return Completion(
            self.request.request_id,
            tuple(self.token_ids),
            tuple(self.log_probs),
            self.finish_reason,
            weight_version,
        )
