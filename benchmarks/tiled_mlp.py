"""What slicing the tokens of feed-forward layers saves in memory and costs in time, by number of slices.

Random models made in place, one thread, float32, forward and backward. Peaks are of torch's CPU allocator: every
tensor that is alive at once, weights and gradients left out. Each figure is a ratio to the same model without the
patch, measured in turns in one run; seconds are the smallest of the rounds, and noise on a busy machine.

    python benchmarks/tiled_mlp.py [--rounds 5] [--tokens 1024]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from roll_ascend.patches.moe_expert_patch import MoeExpertPatch
from roll_ascend.patches.tiled_mlp import TiledMlp
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

SHARDS = (None, 1, 2, 4, 8, 16)
SIZES = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64}
# Wide layers, so that their activations are most of the memory, as with long rows in large models.
WIDTH = 1024


def peak_bytes(run: Callable[[], None]) -> int:
    """Most bytes on the host that `run` held at once beyond what was there before, by torch's allocator.

    After a first call, which makes what stays, such as gradients.
    """
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def make(family: str, num_shards: int | None, *, recomputes: bool) -> Any:
    """A model with as many slices; None leaves its feed-forward layers alone."""
    torch.manual_seed(0)
    if family == "dense":
        config = Qwen3Config(**SIZES, intermediate_size=WIDTH, vocab_size=64)
    else:
        experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH // 2}
        config = Qwen3MoeConfig(**SIZES, **experts, intermediate_size=WIDTH, vocab_size=64)
    model = AutoModelForCausalLM.from_config(config).train()
    if family == "experts":
        MoeExpertPatch().apply(model, {})
    if num_shards is not None:
        TiledMlp().apply(model, {"num_shards": num_shards})
    if recomputes:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def step_of(model: Any, tokens: torch.Tensor) -> Callable[[], None]:
    """Forward and backward, with gradients in memory that stays."""

    def step() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        model(tokens, use_cache=False).logits.square().mean().backward()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1024, help="in one row")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokens = torch.randint(0, 64, (1, arguments.tokens), generator=torch.Generator().manual_seed(0))
    print(f"{'model':9} {'recompute':9} {'slices':>6} {'peak MiB':>9} {'ratio':>6} {'seconds':>8} {'ratio':>6}")
    for family in ("dense", "experts"):
        for recomputes in (False, True):
            steps = {num: step_of(make(family, num, recomputes=recomputes), tokens) for num in SHARDS}
            peaks = {num: peak_bytes(step) for num, step in steps.items()}
            seconds = {num: float("inf") for num in SHARDS}
            for _ in range(arguments.rounds):
                for num, step in steps.items():
                    started = time.perf_counter()
                    step()
                    seconds[num] = min(seconds[num], time.perf_counter() - started)
            for num in SHARDS:
                shown = "none" if num is None else str(num)
                space, spent = peaks[num] / peaks[None], seconds[num] / seconds[None]
                kind = "layers" if recomputes else "no"
                print(
                    f"{family:9} {kind:9} {shown:>6} {peaks[num] / 2**20:9.1f} {space:6.2f}"
                    f" {seconds[num]:8.3f} {spent:6.2f}"
                )


if __name__ == "__main__":
    main()
