"""Tiny models with random weights, made in place, and requests for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference import Completion, GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform
from roll_core.weights import WeightManifest, WeightReceiver
from roll_core.weights.packing import describe

VOCAB = 97
_SHARED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.2,
}

CONFIGS: dict[str, Any] = {
    "llama": lambda: LlamaConfig(**_SHARED, num_key_value_heads=4, attention_bias=True, mlp_bias=True),
    "llama3": lambda: LlamaConfig(
        **_SHARED,
        num_key_value_heads=2,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen2": lambda: Qwen2Config(**_SHARED, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(
        **_SHARED,
        num_key_value_heads=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=256,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.2,
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**_SHARED),
    "mistral": lambda: MistralConfig(**_SHARED, num_key_value_heads=2, sliding_window=12),
}
COMPACT = ("llama", "llama3", "qwen2", "qwen3")


def save_model(folder: Path, kind: str, seed: int = 0, **changes: Any) -> Path:
    """Write a model of a kind; the same seed gives the same weights."""
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    config.update(changes)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # transformers begins with norms of 1 and biases of 0, which would hide a norm or a bias left out.
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * (0.3 if "norm" in name else 0.1))
    model.save_pretrained(folder)
    return folder


def role_of(folder: Path, *, dtype: str = "fp32", **strategy_config: Any) -> WorkerConfig:
    """A role that serves the model in a folder."""
    return WorkerConfig(
        name="actor_infer",
        model_args={"model_name_or_path": str(folder), "dtype": dtype},
        strategy_args={"strategy_name": "hf_infer", "strategy_config": strategy_config},
    )


def make_engine(folder: Path, **strategy_config: Any) -> HfInferStrategy:
    """An engine that has not been started."""
    return HfInferStrategy(role_of(folder, **strategy_config), CpuPlatform(), WorkerContext("actor_infer"))


def reference(folder: Path) -> Any:
    """The same model as transformers alone runs it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def empty_model(folder: Path) -> Any:
    """The model's class with other weights."""
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))


def prompts_of(*lengths: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Random prompts of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(3, VOCAB, (length,), generator=generator).tolist()) for length in lengths]


def request(
    prompt: Sequence[int], name: str = "r", *, seed: int = 0, group: str = "", **params: Any
) -> GenerationRequest:
    """A request; by default for 8 tokens at temperature 1."""
    return GenerationRequest(name, tuple(prompt), SamplingParams(**({"max_new_tokens": 8} | params)), seed, group)


def by_id(completions: Iterator[Completion]) -> dict[str, Completion]:
    """Exhaust an iterator of completions; each must come once."""
    found = list(completions)
    assert len({completion.request_id for completion in found}) == len(found)
    return {completion.request_id: completion for completion in found}


class ListReceiver(WeightReceiver):
    """Weights from a list in this process."""

    def __init__(self, tensors: dict[str, torch.Tensor], version: int = 1, bucket: int = 3) -> None:
        items = list(tensors.items())
        self.buckets = [items[start : start + bucket] for start in range(0, len(items), bucket)]
        self.manifest: WeightManifest = describe(iter(self.buckets), version)

    def receive(self) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """The buckets in order."""
        yield from self.buckets
