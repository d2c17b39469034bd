"""Which tokens end a text of a model, for every engine alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def end_tokens(path: str, config: Any, tokenizer_eos: int | None) -> tuple[int, ...]:
    """Those of the folder's generation config (else of the model's config), and the tokenizer's own."""
    from transformers import GenerationConfig

    given = None
    if (Path(path) / "generation_config.json").is_file():
        given = GenerationConfig.from_pretrained(path).eos_token_id
    if given is None:
        given = getattr(config.get_text_config(), "eos_token_id", None)
    found = set(given if isinstance(given, list) else [] if given is None else [given])
    if tokenizer_eos is not None:
        found.add(tokenizer_eos)
    return tuple(sorted(found))


def has_tokenizer(path: str) -> bool:
    """Whether a model's folder has a tokenizer too."""
    return (Path(path) / "tokenizer_config.json").is_file()
