"""The seam inside hf_infer: who computes logits and keeps the cache of keys and values.

The engine knows its running requests as rows 0..N-1 of a batch. A decoder keeps one cache row for each, in the
same order; both follow the same `Compaction` when requests end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Features = Mapping[str, torch.Tensor]
"""What a model reads of a prompt's images, by the model's own names."""


@dataclass(frozen=True)
class PrefilledPrompt:
    """A prompt that has been read: logits of its first new token [V], and its keys and values as the decoder likes.

    The next token's position is `num_tokens + offset`: an image takes fewer positions than tokens.
    """

    logits: torch.Tensor
    cache: Sequence[torch.Tensor]
    num_tokens: int
    offset: int = 0

    def owned(self) -> PrefilledPrompt:
        """A copy that keeps nothing else alive; prompts read together are slices of the same memory."""
        cache = [tensor.clone() for tensor in self.cache]
        return PrefilledPrompt(self.logits.clone(), cache, self.num_tokens, self.offset)


@dataclass(frozen=True)
class Compaction:
    """How rows close the gaps of those that ended: the last rows move into them.

    Row `targets[i]` is overwritten by row `sources[i]`, then the first `num_rows` rows stay.
    """

    targets: tuple[int, ...]
    sources: tuple[int, ...]
    num_rows: int

    @classmethod
    def without(cls, ended: Sequence[int], num_rows: int) -> Compaction:
        """Close the gaps of the rows `ended` (ascending) among `num_rows`."""
        left = num_rows - len(ended)
        gone = set(ended)
        targets = tuple(row for row in ended if row < left)
        sources = tuple(row for row in range(left, num_rows) if row not in gone)
        return cls(targets, sources, left)

    def order(self) -> list[int]:
        """For each row that stays, which row it was."""
        rows = list(range(self.num_rows))
        for target, source in zip(self.targets, self.sources):
            rows[target] = source
        return rows


class Decoder(ABC):
    """Reads prompts, and computes the next token's logits of all running requests. Called by one thread."""

    vocab_size: int
    reads_images = False
    """Whether `prefill` may be given images."""

    @abstractmethod
    def prefill(
        self, prompts: Sequence[Sequence[int]], images: Sequence[Features | None] = ()
    ) -> list[PrefilledPrompt]:
        """Read prompts in one pass, `images` being those of each. Running requests are left alone."""

    @abstractmethod
    def enter(self, prompts: Sequence[PrefilledPrompt]) -> None:
        """Add one row for each, after the running ones. The same prompt may be given several times in a row."""

    @abstractmethod
    def step(self, tokens_N: torch.Tensor) -> torch.Tensor:
        """Append a token to every row; logits [N, V] of the next."""

    @abstractmethod
    def leave(self, compaction: Compaction) -> None:
        """Drop the rows of requests that ended."""

    @abstractmethod
    def clear(self) -> None:
        """Forget every row. What follows depends on nothing that was before."""

    @abstractmethod
    def free(self) -> None:
        """Forget every row, give all memory back, and let go of the weights. The decoder is not used again."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The model's weights change in place inside the block, all of them."""
        yield
