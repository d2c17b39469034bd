"""Tiny models, a batch, a loss and plain computations to compare strategies and patches with.

Shapes: B rows, P prompt columns, R response columns, as in `roll_core.training.base`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from roll_core.data import DataProto
from roll_core.training import MicroBatch, Tally

VOCABULARY = 64
_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def model_config(family: str, **changes: Any) -> Any:
    """transformers' config of a tiny model of a family, its weights larger than usual so that its outputs differ."""
    import transformers

    experts = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
    classes: Mapping[str, Callable[[], Any]] = {
        "llama": lambda: transformers.LlamaConfig(**_SIZES, **changes),
        "qwen3": lambda: transformers.Qwen3Config(**_SIZES, **changes),
        "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**_SIZES, **experts, **changes),
    }
    return classes[family]()


FAMILIES = ("llama", "qwen3", "qwen3_moe")


def make_model(family: str, **changes: Any) -> Any:
    """A random model; always the same weights."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(model_config(family, **changes))


def write_model(folder: Path, family: str = "qwen3", **changes: Any) -> Path:
    """The model in a folder, as transformers saves it."""
    make_model(family, **changes).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def read_model(folder: Path) -> Any:
    """The model of a folder in float32, as transformers alone reads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def batch(num_rows: int, *, seed: int = 3, prompt: int = 6, response: int = 9) -> DataProto:
    """Random tokens of random lengths; the first row is as long as can be, one response is a single token."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, VOCABULARY, (num_rows, prompt + response), generator=generator)
    prompt_lengths = torch.randint(1, prompt + 1, (num_rows,), generator=generator)
    response_lengths = torch.randint(1, response + 1, (num_rows,), generator=generator)
    prompt_lengths[:1], response_lengths[:1] = prompt, response
    response_lengths[1:2] = 1
    is_prompt = torch.arange(prompt) >= (prompt - prompt_lengths)[:, None]
    is_response = torch.arange(response) < response_lengths[:, None]
    return DataProto(
        {
            "prompts": tokens[:, :prompt] * is_prompt,
            "prompt_lengths": prompt_lengths,
            "responses": tokens[:, prompt:] * is_response,
            "response_lengths": response_lengths,
            "response_mask": is_response,
            "advantages": torch.randn(num_rows, response, generator=generator),
        }
    )


@dataclass(frozen=True)
class AdvantageLoss:
    """-advantage * log-probability, over the number of tokens of the whole mini-batch."""

    num_tokens: int
    needs_entropy = False
    needs_values = False

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]:
        assert micro.log_probs is not None, "the strategy gave the loss no log-probs"
        counted = (-micro.columns["advantages"] * micro.log_probs)[micro.response_mask]
        share = counted.sum() / self.num_tokens
        return share, {"mean_term": Tally(float(counted.detach().sum()), counted.numel())}


def loss_of(rows: DataProto) -> AdvantageLoss:
    """The loss of a mini-batch."""
    return AdvantageLoss(int(rows["response_mask"].sum()))


def plain_scores(model: Any, rows: DataProto, row: int, temperature: float = 1.0) -> tuple[Any, Any]:
    """Log-probs and entropy [r] of one row's response by transformers alone, without any padding."""
    prompt, response = int(rows["prompt_lengths"][row]), int(rows["response_lengths"][row])
    tokens = torch.cat([rows["prompts"][row][-prompt:], rows["responses"][row][:response]])
    every = (model(tokens[None]).logits[0, prompt - 1 : -1] / temperature).log_softmax(-1)
    return every.gather(1, tokens[prompt:, None])[:, 0], -(every.exp() * every).sum(-1)


def plain_loss(model: Any, rows: DataProto) -> torch.Tensor:
    """The same loss by transformers alone, row by row."""
    terms = []
    for row in range(len(rows)):
        log_probs, _ = plain_scores(model, rows, row)
        terms.append((-rows["advantages"][row, : len(log_probs)] * log_probs).sum())
    return torch.stack(terms).sum() / int(rows["response_mask"].sum())
