"""The `compact` decoder: dense Llama, Qwen2 and Qwen3 models with as few kernel calls per token as they need.

Compared with the model's own code it fuses projections, writes keys and values into one block of memory, lets
the query heads of a group share its keys as rows of one product, and never computes a padded position again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from roll_core.inference.compact_model import CompactLayer, Rotation
from roll_core.inference.decoder import Compaction, Decoder, Features, PrefilledPrompt
from roll_core.inference.key_value_cache import KeyValueCache
from roll_core.inference.linear import Linear
from roll_core.inference.packer import Packer
from roll_core.inference.rms_norm import ResidualNorm


class CompactDecoder(Decoder):
    """Reads the weights of a transformers model that `why_not_compact` has nothing against.

    Shapes: N rows, U prompts read together, P columns of the longest, T tokens, R columns of the residual stream,
    Q query heads, H key heads, G = Q / H, W columns of the cache, D head size, V vocabulary.
    """

    def __init__(self, model: nn.Module) -> None:
        config: Any = model.config
        inner: Any = model.get_submodule("model")
        head: Any = model.get_submodule("lm_head")
        self.embedding, self.last_norm = inner.embed_tokens, inner.norm
        self.head = Linear(head.weight, head.bias)
        self.vocab_size = int(head.weight.shape[0])
        self.query_heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.scale = self.head_dim**-0.5
        weight = self.embedding.weight
        # On plain processors two batched products and a softmax take two thirds of the time of torch's kernel for
        # the single token of a step (0.21 instead of 0.31 ms for 128 rows of 4 heads and 48 columns).
        self.has_attention_kernel = weight.device.type != "cpu" or weight.dtype is not torch.float32
        self.nothing = weight.new_empty(1, 1, 1)
        with torch.no_grad():
            self.norm = ResidualNorm(weight.shape[1], inner.norm.variance_epsilon, weight.dtype, weight.device)
            self.layers = [
                CompactLayer(layer, self.norm, self.query_heads, self.key_heads, self.head_dim)
                for layer in inner.layers
            ]
            self.rotation = Rotation(inner.rotary_emb, weight.dtype, weight.device)
        self.packer = Packer([*(linear for layer in self.layers for linear in layer.linears), self.head])
        self.cache = KeyValueCache(len(self.layers), self.key_heads, self.head_dim, weight.dtype, weight.device)

    def prefill(
        self, prompts: Sequence[Sequence[int]], images: Sequence[Features | None] = ()
    ) -> list[PrefilledPrompt]:
        """Read prompts padded on the right, where causal attention keeps the padding out without a mask."""
        device = self.embedding.weight.device
        num_prompts, width = len(prompts), max(map(len, prompts))
        padded = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=device)
        rotation = self.rotation.at(torch.arange(width, device=device), width)
        rotation = rotation.repeat(num_prompts, *[1] * (rotation.dim() - 1))
        x_TR = self.norm.widen(F.embedding(padded.flatten(), self.embedding.weight))
        cache = []
        for layer in self.layers:
            query_key, value = layer.project(x_TR)
            query_key = self.rotation.apply(query_key, rotation)
            heads = torch.cat([query_key, value], dim=1).view(num_prompts, width, -1, self.head_dim).transpose(1, 2)
            query, key, value = torch.split(heads, [self.query_heads, self.key_heads, self.key_heads], dim=1)
            cache += [key, value]
            layer.finish(x_TR, self._attend_causally(query, key, value))
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        last = torch.arange(num_prompts, device=device) * width + lengths - 1
        logits_UV = self._logits(x_TR.index_select(0, last))
        stacked = torch.stack(cache)
        return [
            PrefilledPrompt(logits_UV[row], (stacked[:, row, :, : len(prompt)],), len(prompt))
            for row, prompt in enumerate(prompts)
        ]

    def _attend_causally(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        group = self.query_heads // self.key_heads
        if group > 1:
            key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scale)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1)

    def enter(self, prompts: Sequence[PrefilledPrompt]) -> None:
        """Copy each prompt's keys and values into a row."""
        self.cache.enter([prompt.cache[0] for prompt in prompts])

    def step(self, tokens_N: torch.Tensor) -> torch.Tensor:
        """One token for every row."""
        columns = self.cache.next_columns()
        rotation = self.rotation.at(self.cache.positions(), self.cache.end)
        mask = self.cache.mask()
        x = self.norm.widen(F.embedding(tokens_N, self.embedding.weight))
        for index, layer in enumerate(self.layers):
            query_key, value = layer.project(x)
            query_key = self.rotation.apply(query_key, rotation)
            query, key = torch.split(query_key, [self.query_heads, self.key_heads], dim=1)
            columns.write[2 * index].copy_(key)
            columns.write[2 * index + 1].copy_(value)
            attended = self._attend(query, columns.read[2 * index], columns.read[2 * index + 1], mask)
            layer.finish(x, attended)
        return self._logits(x)

    def _attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        # The G queries that share a key head are the rows of one product, so keys are read once and not repeated.
        if self.has_attention_kernel:
            grouped = query.reshape(len(query), self.key_heads, -1, self.head_dim)
            attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=self.scale)
            return attended.flatten(1)
        num_rows, _, width, _ = keys.shape
        grouped = query.reshape(num_rows * self.key_heads, -1, self.head_dim)
        scores = torch.baddbmm(self.nothing, grouped, keys.flatten(0, 1).mT, beta=0, alpha=self.scale)
        if mask is not None:
            scores.view(num_rows, self.key_heads, -1, width).add_(mask)
        return torch.bmm(torch.softmax(scores, dim=-1), values.flatten(0, 1)).view(num_rows, -1)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x, self.last_norm.weight))

    def leave(self, compaction: Compaction) -> None:
        """Move the last rows into the gaps."""
        self.cache.leave(compaction)

    def clear(self) -> None:
        """Forget every row, keeping the memory."""
        self.cache.clear()

    def free(self) -> None:
        """Give the cache's memory back, and let go of fused and packed matrices."""
        self.cache = self.cache.empty()
        self.packer.stop()
        self.layers = []
        del self.head

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Leaves the packing of the new weights to threads, which go on after the block."""
        self.packer.settle()
        yield
        self.packer.begin()
        with torch.no_grad():
            for layer in self.layers:
                layer.copy_head_norms()
