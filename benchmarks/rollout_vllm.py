"""vLLM as one of `rollout.py`'s contestants, in the Python that has it: work comes by lines, seconds go back.

Its engine runs in this process, so that its processor time is this process's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from roll_core.platforms.cpu import CpuPlatform

MAX_LENGTH, MAX_REQUESTS = 512, 256


def make_engine(folder: str) -> Any:
    """vLLM's offline engine on the model in a folder, with what it needs on plain processors."""
    defaults = CpuPlatform().engine_defaults("vllm")
    os.environ.update(defaults.env)
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    from vllm import LLM

    return LLM(
        **defaults.args
        | {
            "model": folder,
            "dtype": "float32",
            "skip_tokenizer_init": True,
            "max_model_len": MAX_LENGTH,
            "max_num_seqs": MAX_REQUESTS,
            "max_num_batched_tokens": MAX_REQUESTS * 32,
            "logprobs_mode": "processed_logprobs",
            # Other contestants read every prompt anew, too.
            "enable_prefix_caching": False,
        }
    )


def run(engine: Any, prompts: list[list[int]], lengths: list[int]) -> None:
    """Every completion ends at its own length; log-probs of its tokens come with it."""
    from vllm import SamplingParams

    params = [
        SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, logprobs=0, detokenize=False)
        for length in lengths
    ]
    outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in outputs] == lengths


def main(folder: str) -> None:
    """Serve until the other end closes."""
    # What vLLM prints belongs to the log and not among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = make_engine(folder)
    import torch

    torch.set_num_threads(1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        work = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        run(engine, work["prompts"], work["lengths"])
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
