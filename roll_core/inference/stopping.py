"""When a completion ends: at a token, at a string, or at its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """What of a tokenizer stop strings need."""

    def decode(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...


class StopStrings:
    """Finds stop strings in a growing completion, also where they cross the borders of tokens."""

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer) -> None:
        self.strings, self.tokenizer = tuple(strings), tokenizer
        # Every token adds at least a byte of text when special tokens are shown, so this many tokens hold any
        # match that ends in the last one. One more in front: some tokenizers drop a leading space.
        self.window = 1 + max(len(string.encode()) for string in self.strings)

    def ends(self, token_ids: Sequence[int]) -> bool:
        """Whether a stop string has appeared; called after every token."""
        text = self.tokenizer.decode(
            token_ids[-self.window :], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return any(string in text for string in self.strings)
