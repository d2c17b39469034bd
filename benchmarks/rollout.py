"""Rollout speed: transformers' `generate`, hf_infer with both of its decoders, and vLLM where a Python has it.

Same model, prompts, lengths and sampling, all in one run and alternating, best of the repeats. The table also shows
how near hf_infer comes to the matrix products alone. At the end, a weight update beside a memory copy. Takes about
seven minutes on idle cores.

    python benchmarks/rollout.py [--models small,medium,large] [--batches 8,32,128,256] [--repeats 3]
                                 [--vllm-python .venv-vllm/bin/python] [--no-weights]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Set before torch is loaded: with more threads than idle cores every figure is noise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

sys.path.insert(0, str(Path(__file__).parent))

import torch
import weight_update
from machine import ROOT, load_average, write_record
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.utils import logging as transformers_logging

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform

VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
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
    # vLLM has kernels for heads of 32 and more.
    "small": lambda: Qwen3Config(**_NO_SPECIAL_TOKENS, **_sizes(64, 2, 2, 2), head_dim=32, tie_word_embeddings=True),
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


class Vllm:
    """vLLM in a process of its own, on the model in a folder."""

    def __init__(self, python: Path, folder: str) -> None:
        script = Path(__file__).with_name("rollout_vllm.py")
        inherited = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [python, script, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=inherited
        )
        self._answer()

    def seconds(self, work: Work) -> tuple[float, float]:
        """Wall and processor seconds of one run, by its own clock."""
        assert self.process.stdin is not None
        print(json.dumps({"prompts": work.prompts, "lengths": work.lengths}), file=self.process.stdin, flush=True)
        wall, cpu = json.loads(self._answer())
        return wall, cpu

    def stop(self) -> None:
        """End it."""
        self.process.communicate(timeout=60)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"vLLM ended with code {self.process.wait()}; its own words are above")
        return line


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


@dataclass(frozen=True)
class Row:
    """One batch of one model: the best wall and processor seconds of each contestant."""

    model: str
    parameters: int
    batch: int
    lengths: str
    num_tokens: int
    best: dict[str, tuple[float, float]]
    limit: float
    """Tokens per processor second of the matrix products alone."""
    load: float
    """Processes that wanted to run meanwhile, this one included."""

    def ratio(self, other: str, clock: int) -> float:
        """How many times hf_infer is as fast, by the wall clock (0) or the processor's (1)."""
        return self.best[other][clock] / self.best["compact"][clock]

    def cells(self) -> list[str]:
        """In the order of COLUMNS."""
        rates = {label: self.num_tokens / cpu for label, (_wall, cpu) in self.best.items()}
        has_vllm = "vllm" in rates
        return [
            f"{self.model} {self.parameters / 1e6:.2f}M",
            f"{self.batch:3d}",
            self.lengths,
            *(f"{rates[label]:.0f}" for label in ("generate", "compact", "transformers")),
            f"{rates['vllm']:.0f}" if has_vllm else "-",
            f"{self.ratio('generate', 1):.2f}",
            f"{self.ratio('generate', 0):.2f}",
            f"{self.ratio('vllm', 1):.2f}" if has_vllm else "-",
            f"{self.ratio('vllm', 0):.2f}" if has_vllm else "-",
            f"{self.limit:.0f}",
            f"{100 * rates['compact'] / self.limit:.0f} %",
            f"{self.load:.1f}",
        ]


COLUMNS = (
    "model",
    "batch",
    "lengths",
    "generate",
    "hf_infer",
    "hf_infer, decoder transformers",
    "vLLM",
    "hf_infer/generate",
    "by the wall",
    "hf_infer/vLLM",
    "by the wall",
    "limit",
    "of limit",
    "load",
)


def measure(name: str, batches: Sequence[int], repeats: int, vllm_python: Path | None) -> Iterator[Row]:
    """One row per batch size and kind of lengths."""
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(CONFIGS[name]()).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        engines = {decoder: make_engine(Path(folder), decoder) for decoder in ("compact", "transformers")}
        vllm = Vllm(vllm_python, folder) if vllm_python else None
        for batch in batches:
            limit = matrix_limit(model.config, batch)
            for mixed in (False, True):
                work = make_work(batch, mixed=mixed)
                runs: dict[str, Callable[[], tuple[float, float]]] = {
                    "generate": lambda work=work: seconds(lambda: run_generate(model, work))
                }
                for decoder, engine in engines.items():
                    runs[decoder] = lambda engine=engine, work=work: seconds(lambda: run_engine(engine, work))
                if vllm is not None:
                    runs["vllm"] = lambda work=work: vllm.seconds(work)
                best = dict.fromkeys(runs, (float("inf"), float("inf")))
                for _ in range(repeats):
                    for label, run in runs.items():
                        best[label] = min(best[label], run(), key=lambda pair: pair[1])
                lengths = "mixed" if mixed else "equal"
                yield Row(name, parameters, batch, lengths, work.num_tokens, best, limit, load_average())
        for engine in engines.values():
            engine.stop()
        if vllm is not None:
            vllm.stop()


def wanted(rows: Sequence[Row]) -> Iterator[str]:
    """The worst of each ratio beside the one that is wanted, in processor time."""
    for lengths, least in (("equal", 1.5), ("mixed", 4.0)):
        ratios = [(row.ratio("generate", 1), f"{row.model}, {row.batch}") for row in rows if row.lengths == lengths]
        yield f"hf_infer/generate, {lengths} lengths: {_worst(ratios, least)}"
    ratios = [
        (row.ratio("vllm", 1), f"{row.model}, {row.batch}, {row.lengths}")
        for row in rows
        if "vllm" in row.best and row.parameters <= 1e6
    ]
    if ratios:
        yield f"hf_infer/vLLM up to 1M parameters: {_worst(ratios, 1.0)}"


def _worst(ratios: Sequence[tuple[float, str]], least: float) -> str:
    missed = [f"{where} ({ratio:.2f})" for ratio, where in ratios if ratio < least]
    text = f"{min(ratios)[0]:.2f} to {max(ratios)[0]:.2f}, wanted {least:g}"
    return f"{text}; missed: {'; '.join(missed)}" if missed else text


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(CONFIGS))
    parser.add_argument("--batches", default="8,32,128,256")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vllm-python", type=Path, help="a Python that has vLLM (default: that of `make test-vllm`)")
    parser.add_argument("--no-weights", action="store_true", help="leave the weight update out")
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    asked = options()
    python = asked.vllm_python or (VLLM_PYTHON if VLLM_PYTHON.exists() else None)
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    print(
        f"tokens per processor second; 1 thread, float32, prompts of {PROMPT} tokens, vocabulary {VOCAB}, temperature 1"
    )
    print(f"equal: {NEW_TOKENS} new tokens each; mixed: long-tailed up to {LONGEST}. limit: matrix products alone")
    if python is None:
        print(f"vLLM is left out: there is no {VLLM_PYTHON}; `make test-vllm` makes it, --vllm-python names another")
    print(f"load average at the start: {load_average():.1f}\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    rows = []
    for name in asked.models.split(","):
        for row in measure(name, [int(batch) for batch in asked.batches.split(",")], asked.repeats, python):
            rows.append(row)
            print(f"| {' | '.join(row.cells())} |", flush=True)
    print("", *wanted(rows), sep="\n")
    results: dict[str, Any] = {"rows": [asdict(row) for row in rows]}
    if not asked.no_weights:
        figures = weight_update.measure(asked.repeats)
        results["weights"] = asdict(figures)
        print(*figures.lines(), sep="\n")
    write_record("rollout", ["torch", "transformers"], results)


if __name__ == "__main__":
    main()
