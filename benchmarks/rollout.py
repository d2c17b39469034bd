"""Rollout speed: transformers' `generate` against hf_infer with both of its decoders.

Same model, prompts, lengths and sampling, all in one run and alternating, best of the repeats. Each table
also shows how near the compact decoder comes to the matrix products alone. Takes about twelve minutes on one core.

    python benchmarks/rollout.py [--models small,medium,large] [--batches 8,32,128,256] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Set before torch is loaded: with more threads than idle cores every figure is noise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.utils import logging as transformers_logging

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform

VOCAB, PROMPT, NEW_TOKENS, LONGEST = 512, 16, 64, 256
_NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0, "vocab_size": VOCAB}


def _sizes(hidden: int, layers: int, heads: int, key_heads: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
    }


CONFIGS: dict[str, Callable[[], Any]] = {
    "small": lambda: Qwen3Config(**_NO_SPECIAL_TOKENS, **_sizes(64, 2, 4, 4), head_dim=16, tie_word_embeddings=True),
    "medium": lambda: LlamaConfig(**_NO_SPECIAL_TOKENS, **_sizes(128, 4, 4, 2)),
    "large": lambda: Qwen2Config(**_NO_SPECIAL_TOKENS, **_sizes(256, 4, 8, 2)),
}


@dataclass(frozen=True)
class Work:
    """Prompts of one batch, and how many tokens each completion has."""

    prompts: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens asked for; what is computed beyond them is waste."""
        return sum(self.lengths)


def make_work(batch: int, *, mixed: bool) -> Work:
    """Random prompts; all completions of 64 tokens, or lengths of a long-tailed kind up to 256."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, VOCAB, (batch, PROMPT), generator=generator).tolist()
    lengths = [NEW_TOKENS] * batch
    if mixed:
        lognormal = torch.exp(torch.randn(batch, generator=generator) * 0.9 + 3.6)
        lengths = lognormal.clamp(4, LONGEST).int().tolist()
    return Work(tuple(map(tuple, prompts)), tuple(lengths))


def run_generate(model: Any, work: Work) -> None:
    """transformers: the batch runs until its longest completion is done."""
    ids = torch.tensor(work.prompts)
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=max(work.lengths),
        return_dict_in_generate=True,
        output_logits=True,
    )


def run_engine(engine: HfInferStrategy, work: Work) -> None:
    """hf_infer: every completion ends at its own length."""
    requests = [
        GenerationRequest(str(index), prompt, SamplingParams(length), seed=index)
        for index, (prompt, length) in enumerate(zip(work.prompts, work.lengths))
    ]
    num_tokens = sum(len(completion.token_ids) for completion in engine.generate(requests))
    assert num_tokens == work.num_tokens


def make_engine(folder: Path, decoder: str) -> HfInferStrategy:
    """A started engine on the model in a folder."""
    role = WorkerConfig.model_validate(
        {
            "name": "actor_infer",
            "model_args": {"model_name_or_path": str(folder), "dtype": "fp32"},
            "strategy_args": {"strategy_name": "hf_infer", "strategy_config": {"decoder": decoder}},
        }
    )
    engine = HfInferStrategy(role, CpuPlatform(), WorkerContext("actor_infer"))
    engine.start()
    return engine


def seconds(action: Callable[[], None]) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def matrix_limit(config: Any, batch: int) -> float:
    """Tokens per processor second if a step were nothing but its matrix products, with every weight read once."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, _head_dim(config)
    query, key = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    layer = [(query + 2 * key, hidden), (hidden, query), (2 * inner, hidden), (hidden, inner)]
    weights = [torch.randn(shape) for shape in [*layer * config.num_hidden_layers, (VOCAB, hidden)]]
    inputs = {shape[1]: torch.randn(batch, shape[1]) for shape in map(tuple, (weight.shape for weight in weights))}

    def step() -> None:
        for weight in weights:
            torch.nn.functional.linear(inputs[weight.shape[1]], weight)

    return max(batch / seconds(step)[1] for _ in range(50))


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rows(name: str, batches: Sequence[int], repeats: int) -> Iterator[str]:
    """One table row per batch size and kind of lengths."""
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(CONFIGS[name]()).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        engines = {decoder: make_engine(Path(folder), decoder) for decoder in ("compact", "transformers")}
        for batch in batches:
            limit = matrix_limit(model.config, batch)
            for mixed in (False, True):
                work = make_work(batch, mixed=mixed)
                actions: dict[str, Callable[[], None]] = {"generate": lambda work=work: run_generate(model, work)}
                for decoder, engine in engines.items():
                    actions[decoder] = lambda engine=engine, work=work: run_engine(engine, work)
                best = dict.fromkeys(actions, (float("inf"), float("inf")))
                for _ in range(repeats):
                    for label, action in actions.items():
                        best[label] = min(best[label], seconds(action), key=lambda pair: pair[1])
                yield _row(name, parameters, batch, mixed, work, best, limit)
        for engine in engines.values():
            engine.stop()


def _row(
    name: str,
    parameters: int,
    batch: int,
    mixed: bool,
    work: Work,
    best: dict[str, tuple[float, float]],
    limit: float,
) -> str:
    rates = {label: work.num_tokens / cpu for label, (_wall, cpu) in best.items()}
    cells = [
        f"{name} {parameters / 1e6:.2f}M",
        f"{batch:3d}",
        "mixed" if mixed else "equal",
        *(f"{rate:8.0f}" for rate in rates.values()),
        f"{rates['compact'] / rates['generate']:5.2f}",
        f"{rates['transformers'] / rates['generate']:5.2f}",
        f"{best['generate'][0] / best['compact'][0]:5.2f}",
        f"{limit:8.0f}",
        f"{100 * rates['compact'] / limit:3.0f} %",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(CONFIGS))
    parser.add_argument("--batches", default="8,32,128,256")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    print(
        f"tokens per processor second; 1 thread, float32, prompts of {PROMPT} tokens, vocabulary {VOCAB}, temperature 1"
    )
    print(f"equal: {NEW_TOKENS} new tokens each; mixed: long-tailed up to {LONGEST}. limit: matrix products alone")
    print(
        "| model | batch | lengths | generate | compact | transformers | compact/generate | transformers/generate "
        "| compact/generate, wall | limit | of limit |"
    )
    print("|---" * 11 + "|")
    for name in options.models.split(","):
        for row in rows(name, [int(batch) for batch in options.batches.split(",")], options.repeats):
            print(row, flush=True)


if __name__ == "__main__":
    main()
