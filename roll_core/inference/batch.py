"""The requests that run together: their prompts, their rows in the decoder, and the tokens they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from roll_core.inference.decoder import Compaction, Decoder, PrefilledPrompt
from roll_core.inference.running import PromptKey, Running
from roll_core.inference.sampling import Sampler


class Batch:
    """The rows that run, their prompts, and the tokens they get. Used by the engine's thread alone."""

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        self.decoder, self.device = decoder, device
        self.rows: list[Running] = []
        self._sampler: Sampler | None = None
        self._tokens: torch.Tensor | None = None
        self._prefilled: dict[PromptKey, PrefilledPrompt] = {}
        self._shared: dict[PromptKey, PrefilledPrompt] = {}
        self._shared_later: set[PromptKey] = set()

    def clear(self) -> None:
        """Forget everything."""
        self.rows, self._sampler, self._tokens = [], None, None
        self._prefilled, self._shared, self._shared_later = {}, {}, set()
        self.decoder.clear()

    def keep_shared(self, now: set[PromptKey], later: set[PromptKey]) -> None:
        """Which prompts are asked for now, and which will be later; what was read of any other is forgotten."""
        self._shared_later = later
        self._shared = {key: prompt for key, prompt in self._shared.items() if key in now | later}

    def chunks(self, admitted: Sequence[Running], max_tokens: int) -> Iterator[list[Running]]:
        """Split requests so that each part's prompts fit one pass, counted once each and padded to their longest."""
        chunk: list[Running] = []
        keys: set[PromptKey] = set()
        longest = 0
        for running in admitted:
            key, length = running.prompt_key, len(running.request.prompt_ids)
            if key not in keys and key not in self._shared:
                if chunk and (len(keys) + 1) * max(longest, length) > max_tokens:
                    yield chunk
                    chunk, keys, longest = [], set(), 0
                keys.add(key)
                longest = max(longest, length)
            chunk.append(running)
        if chunk:
            yield chunk

    def read(self, chunk: Sequence[Running]) -> tuple[list[int], list[float]]:
        """Read the prompts of requests, each different one once, and draw their first tokens."""
        prompts = {running.prompt_key: running for running in chunk}
        unread = {key: running for key, running in prompts.items() if key not in self._shared}
        self._prefilled = {key: self._shared[key] for key in prompts if key in self._shared}
        if unread:
            images = [running.images for running in unread.values()]
            given = [running.request.prompt_ids for running in unread.values()]
            read = self.decoder.prefill(given, images) if any(images) else self.decoder.prefill(given)
            self._prefilled |= dict(zip(unread, read))
        self._shared |= {key: self._prefilled[key].owned() for key in unread if key in self._shared_later}
        logits = torch.stack([self._prefilled[running.prompt_key].logits for running in chunk])
        for running in chunk:
            running.watch_tokens(self.decoder.vocab_size, self.device)
        tokens, log_probs = Sampler(chunk, logits.shape[1], self.device).draw(logits)
        return tokens.tolist(), log_probs.tolist()

    def enter(self, chunk: Sequence[Running]) -> None:
        """Let requests whose prompts were just read run."""
        if chunk:
            self.decoder.enter([self._prefilled[running.prompt_key] for running in chunk])
            self.rows.extend(chunk)
            self._sampler = self._tokens = None
        self._prefilled = {}

    def step(self) -> tuple[list[int], list[float]]:
        """One more token for every row."""
        if self._tokens is None:
            self._tokens = torch.tensor([running.token_ids[-1] for running in self.rows], device=self.device)
        logits = self.decoder.step(self._tokens)
        if self._sampler is None:
            self._sampler = Sampler(list(self.rows), logits.shape[1], self.device)
        self._tokens, log_probs = self._sampler.draw(logits)
        return self._tokens.tolist(), log_probs.tolist()

    def remove_finished(self) -> None:
        """Close the gaps of requests that ended."""
        ended = [row for row, running in enumerate(self.rows) if running.finish_reason is not None]
        if not ended:
            return
        compaction = Compaction.without(ended, len(self.rows))
        self.decoder.leave(compaction)
        self.rows = [self.rows[row] for row in compaction.order()]
        self._sampler = self._tokens = None
