"""The `transformers` decoder: any causal language model, computed by its own code."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from roll_core.inference.decoder import Compaction, Decoder, Features, PrefilledPrompt
from roll_core.training.vision import next_offset, positions, reads_images

ATTENTION_KINDS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers whose whole state is the keys and values of every token."""


def why_not_transformers(model: nn.Module) -> str | None:
    """The reason why rows of this model's cache cannot enter and leave; None where they can."""
    config: Any = model.config
    if config.is_encoder_decoder:
        return f"{type(model).__name__} has an encoder, and hf_infer serves decoders"
    kinds = set(getattr(config, "layer_types", None) or []) - ATTENTION_KINDS
    if kinds or getattr(model, "_is_stateful", False):
        shown = ", ".join(sorted(kinds)) or "a recurrent state"
        return f"{type(model).__name__} has {shown}, whose state hf_infer cannot split into rows"
    return None


class TransformersDecoder(Decoder):
    """Keeps the cache as transformers does, and selects its rows when requests come and go.

    Shapes: N rows, U prompts read together, P columns of the longest, W columns of the cache, V vocabulary.
    Rows are padded on the left.
    """

    def __init__(self, model: nn.Module) -> None:
        config: Any = model.config
        self.model: Any = model
        self.vocab_size = int(config.get_text_config().vocab_size)
        self.device = next(model.parameters()).device
        accepted = inspect.signature(self.model.forward).parameters
        self.reads_images = reads_images(config)
        self.takes_positions = "position_ids" in accepted
        self.options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self.clear()

    def clear(self) -> None:
        """Forget every row."""
        self.cache = DynamicCache()
        self.padding: list[int] = []
        self.offsets: list[int] = []
        self.width = 0
        self._batch_changed()

    def free(self) -> None:
        """Nothing but the cache is kept here."""
        self.clear()

    def _batch_changed(self) -> None:
        self._positions: torch.Tensor | None = None
        self._is_present: torch.Tensor | None = None

    def prefill(
        self, prompts: Sequence[Sequence[int]], images: Sequence[Features | None] = ()
    ) -> list[PrefilledPrompt]:
        """Read prompts padded on the left, as `generate` does."""
        width = max(map(len, prompts))
        pads = [width - len(prompt) for prompt in prompts]
        ids_UP = torch.tensor([[0] * pad + list(prompt) for pad, prompt in zip(pads, prompts)], device=self.device)
        columns, pad_U1 = torch.arange(width, device=self.device), torch.tensor(pads, device=self.device)[:, None]
        cache = DynamicCache()
        present = (columns >= pad_U1).long() if any(pads) else None
        given = [one for one in images if one is not None]
        pixels = {name: torch.cat([one[name] for one in given]) for name in given[0]} if given else {}
        offsets = [0] * len(prompts)
        if pixels:
            where = positions(self.model.config, ids_UP, present, pixels)
            offsets = [next_offset(where[:, row, pad:]) for row, pad in enumerate(pads)]
        else:
            where = (columns - pad_U1).clamp_(min=0)
        logits_UV = self._forward(ids_UP, present, where, cache, pixels)
        layers = [tensor for pair in _layers(cache) for tensor in pair]
        return [
            PrefilledPrompt(logits_UV[row], [layer[row, :, pad:] for layer in layers], width - pad, offsets[row])
            for row, pad in enumerate(pads)
        ]

    def _forward(
        self,
        ids: torch.Tensor,
        present: torch.Tensor | None,
        where: torch.Tensor,
        cache: DynamicCache,
        pixels: Features,
    ) -> torch.Tensor:
        options: dict[str, Any] = {**self.options, **pixels}
        if self.takes_positions:
            options["position_ids"] = where
        outputs = self.model(input_ids=ids, attention_mask=present, past_key_values=cache, use_cache=True, **options)
        logits: torch.Tensor = outputs.logits[:, -1]
        return logits

    def enter(self, prompts: Sequence[PrefilledPrompt]) -> None:
        """Add rows, padding whichever are shorter."""
        old_rows, old_width = len(self.padding), self.width
        width = max(old_width, *(prompt.num_tokens for prompt in prompts))
        old = [tensor for pair in _layers(self.cache) for tensor in pair]
        merged = []
        for index in range(len(prompts[0].cache)):
            part = prompts[0].cache[index]
            heads, _, size = part.shape
            whole = part.new_zeros(old_rows + len(prompts), heads, width, size)
            if old_rows:
                whole[:old_rows, :, width - old_width :] = old[index]
            for row, prompt in enumerate(prompts, start=old_rows):
                whole[row, :, width - prompt.num_tokens :] = prompt.cache[index]
            merged.append(whole)
        self.cache = _cache_of(merged)
        self.padding = [pad + width - old_width for pad in self.padding]
        self.padding += [width - prompt.num_tokens for prompt in prompts]
        self.offsets += [prompt.offset for prompt in prompts]
        self.width = width
        self._batch_changed()

    def step(self, tokens_N: torch.Tensor) -> torch.Tensor:
        """One token for every row."""
        if self._positions is None:
            pads = torch.tensor(self.padding, device=self.device)[:, None]
            self._positions = self.width - pads + torch.tensor(self.offsets, device=self.device)[:, None]
            if any(self.padding):
                self._is_present = (torch.arange(self.width, device=self.device) >= pads).long()
        if self._is_present is not None:
            newest = self._is_present.new_ones(len(self.padding), 1)
            self._is_present = torch.cat([self._is_present, newest], dim=1)
        logits_NV = self._forward(tokens_N[:, None], self._is_present, self._positions, self.cache, {})
        self._positions = self._positions + 1
        self.width += 1
        return logits_NV

    def leave(self, compaction: Compaction) -> None:
        """Select the rows that stay, and cut columns that none of them uses."""
        order = compaction.order()
        self.padding = [self.padding[row] for row in order]
        self.offsets = [self.offsets[row] for row in order]
        if not order:
            self.clear()
            return
        cut = min(self.padding)
        rows = torch.tensor(order, device=self.device)
        tensors = [tensor for pair in _layers(self.cache) for tensor in pair]
        self.cache = _cache_of([tensor[:, :, cut:].index_select(0, rows) for tensor in tensors])
        self.padding = [pad - cut for pad in self.padding]
        self.width -= cut
        self._batch_changed()


def _layers(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def _cache_of(tensors: Sequence[torch.Tensor]) -> DynamicCache:
    cache = DynamicCache()
    for index in range(len(tensors) // 2):
        cache.update(tensors[2 * index], tensors[2 * index + 1], index)
    return cache
