"""A judge's questions as tokens and its replies as text: the tokenizer of its model's folder, and a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roll_core.data.templates import render


class TokenizerText:
    """The `JudgeText` of a model's folder. `template` is a name of `roll_core.data.templates.TEMPLATES`."""

    def __init__(self, folder: str, template: str) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.template = template
        eos = self.tokenizer.eos_token_id
        self.stop_token_ids: tuple[int, ...] = () if eos is None else (int(eos),)

    def encode(self, question: str) -> tuple[int, ...]:
        """Token ids of a dialogue that consists of a question; special tokens stand in the template.

        Raises:
            DataError: the template is the tokenizer's own and it has none.
        """
        text = render(self.template, self.tokenizer, [{"role": "user", "content": question}])
        return tuple(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a reply, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))
