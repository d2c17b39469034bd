"""What a model's folder says of it, as transformers reads it: lengths, end tokens, names and shapes of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import nn

from roll_core.inference.end_tokens import end_tokens, has_tokenizer


class ModelFacts:
    """A model's folder, read without its weights."""

    def __init__(self, path: str, changes: Mapping[str, Any]) -> None:
        from transformers import AutoConfig

        self.path = path
        self.config: Any = AutoConfig.from_pretrained(path, **changes)

    @cached_property
    def skeleton(self) -> nn.Module:
        """The model as transformers builds it, with no memory behind its tensors: these names a trainer sends."""
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            model: nn.Module = AutoModelForCausalLM.from_config(self.config)
        return model

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        from transformers import AutoTokenizer

        own = AutoTokenizer.from_pretrained(self.path).eos_token_id if self.has_tokenizer else None
        return end_tokens(self.path, self.config, own)

    @property
    def vocab_size(self) -> int:
        """Tokens the model knows."""
        return int(self.config.get_text_config().vocab_size)

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder has a tokenizer too."""
        return has_tokenizer(self.path)
