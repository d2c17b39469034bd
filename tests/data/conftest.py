"""Files of rows and a small tokenizer, for tests of the data folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

WriteRows = Callable[..., str]

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    """Write rows to a file and return its path. A row is a mapping, or text or bytes that are written as they are."""

    def write(*rows: object, name: str = "rows.jsonl") -> str:
        lines = [
            row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode()
            for row in rows
        ]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines))
        return str(path)

    return write


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, so that the length of a prompt is the length of its text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=core)
    wrapped.chat_template = CHAT
    return wrapped
