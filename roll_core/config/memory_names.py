"""Sizes of published models by name, for plans made where the model's folder is not.

Each row is what the model's published config.json says.
"""

from __future__ import annotations

from roll_core.config.memory_shapes import ModelShape


def _qwen2(hidden: int, intermediate: int, layers: int, heads: int, key_heads: int, is_tied: bool) -> ModelShape:
    vocabulary = 151936 if is_tied else 152064
    head_dim = hidden // heads
    return ModelShape(hidden, layers, heads, key_heads, head_dim, intermediate, vocabulary, is_tied, has_bias=True)


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, key_heads: int, is_tied: bool) -> ModelShape:
    return ModelShape(hidden, layers, heads, key_heads, 128, intermediate, 151936, is_tied, has_query_norm=True)


def _qwen3_experts(hidden: int, intermediate: int, layers: int, heads: int) -> ModelShape:
    return ModelShape(
        hidden,
        layers,
        heads,
        4,
        128,
        intermediate,
        151936,
        has_query_norm=True,
        experts=128,
        experts_per_token=8,
        expert_intermediate=intermediate,
    )


def _llama(hidden: int, intermediate: int, layers: int, heads: int, head_dim: int, is_tied: bool) -> ModelShape:
    return ModelShape(hidden, layers, heads, 8, head_dim, intermediate, 128256, is_tied)


PUBLISHED: dict[str, ModelShape] = {
    "qwen2.5-0.5b": _qwen2(896, 4864, 24, 14, 2, True),
    "qwen2.5-1.5b": _qwen2(1536, 8960, 28, 12, 2, True),
    "qwen2.5-3b": _qwen2(2048, 11008, 36, 16, 2, True),
    "qwen2.5-7b": _qwen2(3584, 18944, 28, 28, 4, False),
    "qwen2.5-14b": _qwen2(5120, 13824, 48, 40, 8, False),
    "qwen2.5-32b": _qwen2(5120, 27648, 64, 40, 8, False),
    "qwen2.5-72b": _qwen2(8192, 29568, 80, 64, 8, False),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, 8, True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, 8, True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, 8, True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32, 8, False),
    "qwen3-14b": _qwen3(5120, 17408, 40, 40, 8, False),
    "qwen3-32b": _qwen3(5120, 25600, 64, 64, 8, False),
    "qwen3-30b-a3b": _qwen3_experts(2048, 768, 48, 32),
    "qwen3-235b-a22b": _qwen3_experts(4096, 1536, 94, 64),
    "llama-3.2-1b": _llama(2048, 8192, 16, 32, 64, True),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 128, True),
    "llama-3.1-8b": _llama(4096, 14336, 32, 32, 128, False),
    "llama-3.1-70b": _llama(8192, 28672, 80, 64, 128, False),
    "llama-3.3-70b": _llama(8192, 28672, 80, 64, 128, False),
}

SAME_AS = {
    "qwen2.5-math-1.5b": "qwen2.5-1.5b",
    "qwen2.5-math-7b": "qwen2.5-7b",
    "qwen2.5-math-72b": "qwen2.5-72b",
    "qwen2.5-coder-7b": "qwen2.5-7b",
    "qwen2.5-coder-14b": "qwen2.5-14b",
    "qwen2.5-coder-32b": "qwen2.5-32b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.1-70b",
    "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "meta-llama-3.1-8b": "llama-3.1-8b",
    "meta-llama-3.1-70b": "llama-3.1-70b",
}
"""Models with the sizes of others."""


def published(name: str) -> tuple[str, ModelShape] | None:
    """The longest known name that a model's name begins with, whatever folder or owner stands before it."""
    last = name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")
    fitting = [
        known
        for known in (*PUBLISHED, *SAME_AS)
        if last == known or (last.startswith(known) and not (last[len(known)].isalnum() or last[len(known)] == "."))
    ]
    if not fitting:
        return None
    best = max(fitting, key=len)
    return best, PUBLISHED[SAME_AS.get(best, best)]
