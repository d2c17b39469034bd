"""Turns of a dialogue as token ids, such that what was sampled is never tokenised again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from roll_core.data.messages import Message
from roll_core.data.templates import render
from roll_core.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TokenIds = tuple[int, ...]
_ANSWER = "<<the-answer-stands-here>>"
_REMEMBERED = 50_000


class Dialogue:
    """A tokenizer with a chat template.

    A further turn is rendered behind a made-up answer and cut off after it, so its ids are those that the template
    gives them, and the ids before it stay as they were sampled.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: str) -> None:
        self.tokenizer, self.template = tokenizer, template
        self._ids: dict[str, TokenIds] = {}

    def opening(self, messages: Sequence[Message]) -> TokenIds:
        """Ids of the first turns, up to where the first answer begins."""
        return self._encode(render(self.template, self.tokenizer, messages))

    def continuation(self, message: Message, last_token: int) -> TokenIds:
        """Ids of what follows an answer: the end of its turn, a further message, the beginning of the next answer.

        Args:
            last_token: the last id of the answer. Where it is what ends a turn in the template, it is not repeated.

        Raises:
            DataError: the template has no place for the message.
        """
        turns: list[Message] = [{"role": "user", "content": "."}, {"role": "assistant", "content": _ANSWER}, message]
        text = render(self.template, self.tokenizer, turns)
        _, found, rest = text.rpartition(_ANSWER)
        if not found or str(message["content"]).strip() not in rest:
            raise DataError(
                f"the chat template '{self.template}' leaves out a turn of the {message['role']} after an answer"
                "\n  try: data_args.template: chatml"
            )
        return self._encode(rest.removeprefix(self.tokenizer.decode([last_token])))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def full_text_of(self, token_ids: Sequence[int]) -> str:
        """Text of ids with their special tokens, for files and people."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def _encode(self, text: str) -> TokenIds:
        # Many episodes see the same few things.
        if text not in self._ids:
            if len(self._ids) >= _REMEMBERED:
                self._ids.clear()
            self._ids[text] = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return self._ids[text]


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each {name} of `values` replaced; all other braces stay as they are."""
    names = "|".join(re.escape(name) for name in values)
    return re.sub(rf"\{{({names})\}}", lambda found: str(values[found[1]]), template)
