"""What `roll check` estimates a role to need in memory, beside the peak that the role really has.

Each case runs in a process of its own: imports and a step of a tiny model first, then the case's model is loaded and
trained, scored or sampled with, by the same classes that a run uses. Measured is how far the process's resident memory
rose at its highest; the kernel counts it. The estimate is of the tensors alone, so models are chosen so large that
these dominate the interpreter, and the C library is told to give every freed tensor back: left to itself it keeps
blocks below 32 MiB, of which a model of many middle-sized tensors leaves more than twice its own need behind.

    python benchmarks/memory_plan.py [--cases train,train-checkpointed,...]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from machine import QUIET, write_record

TOLERANCE = 0.20
STEPS = 2
TINY = "tiny"
RANK = "MEMORY_PLAN_RANK"
"""The variable with the rank of a process and the port of its group."""
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}


@dataclass(frozen=True)
class Case:
    """A role with a model: `sizes` are the model's, `kind` what the role does, `rows` those of one micro-batch.

    With several `ranks`, what is measured and estimated is each one's; the largest counts.
    """

    name: str
    kind: str
    sizes: dict[str, int]
    rows: int
    prompt: int
    response: int
    tied: bool = False
    micro_batches: int = 1
    ranks: int = 1
    model_args: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


def _sizes(hidden: int, intermediate: int, layers: int, vocabulary: int, heads: int = 8) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": vocabulary,
    }


WEIGHTS = _sizes(640, 2560, 8, 2048)
LAYERS = _sizes(384, 1024, 12, 1024)
VOCABULARY = _sizes(256, 512, 2, 32768)
CASES = (
    # Weights, gradients and optimiser decide.
    Case("train-weights", "train", WEIGHTS, 2, 32, 32),
    Case("train-accumulated", "train", WEIGHTS, 2, 32, 32, micro_batches=3),
    Case("train-ranks", "train", WEIGHTS, 2, 32, 32, ranks=2),
    Case("train-bf16", "train", WEIGHTS, 2, 32, 32, model_args={"dtype": "bf16"}),
    # What backward keeps decides.
    Case("train-activations", "train", LAYERS, 8, 128, 256, model_args={"disable_gradient_checkpointing": True}),
    Case("train-checkpointed", "train", LAYERS, 16, 128, 256),
    Case("train-vocabulary", "train", VOCABULARY, 8, 64, 192),
    Case("score", "score", VOCABULARY, 8, 64, 192),
    Case("generate-cache", "generate", LAYERS, 64, 64, 192),
)


def settings(case: Case, folder: Path) -> dict[str, Any]:
    """A whole config in which the case's role is the one that is measured."""
    strategies = {"train": "fsdp2_train", "score": "fsdp2_infer", "generate": "hf_infer"}
    role = {
        "model_args": {"dtype": "fp32"} | case.model_args,
        "training_args": {
            "per_device_train_batch_size": case.rows,
            "gradient_accumulation_steps": case.micro_batches,
            "lr_scheduler_type": "constant",
        },
        "strategy_args": {"strategy_name": strategies[case.kind], "strategy_config": case.strategy},
        "device_mapping": list(range(case.ranks)),
        "infer_batch_size": case.rows,
    }
    path = {"train": "actor_train", "score": "reference", "generate": "actor_infer"}[case.kind]
    other = {"strategy_args": {"strategy_name": "hf_infer"}, "device_mapping": [0]}
    roles = {"actor_infer": other} | {path: role}
    return roles | {
        "pretrain": str(folder),
        "rollout_batch_size": case.rows * case.micro_batches * case.ranks,
        "num_return_sequences_in_group": 1,
        "prompt_length": case.prompt,
        "response_length": case.response,
        "rewards": {"math_rule": {}},
    }


def estimate(case: Case, folder: Path) -> dict[str, Any]:
    """What `roll check` would say of the role."""
    from roll_core.config.memory_roles import role_need
    from roll_core.config.rlvr import RLVRConfig

    config = RLVRConfig.model_validate(settings(case, folder))
    path = {"train": "actor_train", "score": "reference", "generate": "actor_infer"}[case.kind]
    _size, need = role_need(config, path, config.roles()[path])
    return asdict(need)


def write_model(case: Case, folder: Path) -> None:
    """A random model in Hugging Face format."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    config = Qwen3Config(**case.sizes, tie_word_embeddings=case.tied, eos_token_id=None, bos_token_id=None)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def run(case: Case, folder: Path) -> None:
    """Do what the role does, twice."""
    from roll_core.config.rlvr import RLVRConfig

    config = RLVRConfig.model_validate(settings(case, folder))
    {"train": _train, "score": _score, "generate": _generate}[case.kind](config, case)


def _strategy(config: Any, path: str, case: Case) -> Any:
    from roll_core.context import WorkerContext
    from roll_core.inference.hf import HfInferStrategy
    from roll_core.platforms.cpu import CpuPlatform
    from roll_core.training.fsdp2 import Fsdp2Strategy

    rank, port = (int(text) for text in os.environ.get(RANK, "0,0").split(","))
    # The tiny model's group ends before the case's begins, and its port is not free at once.
    port += 1 if case.name == TINY else 0
    context = WorkerContext(path, rank, case.ranks, master_port=port if case.ranks > 1 else 0, timeout_s=300)
    kind_class = HfInferStrategy if case.kind == "generate" else Fsdp2Strategy
    return kind_class(config.roles()[path], CpuPlatform(), context)


def _train(config: Any, case: Case) -> None:
    from roll_core.training.base import TrainPlan
    from tests.training.support import advantage_loss

    strategy = _strategy(config, "actor_train", case)
    strategy.setup(TrainPlan(total_steps=STEPS))
    rows = _rows(case)
    for _ in range(STEPS):
        strategy.train_step(rows, advantage_loss(rows))
    strategy.close()


def _score(config: Any, case: Case) -> None:
    strategy = _strategy(config, "reference", case)
    strategy.setup(None)
    for _ in range(STEPS):
        strategy.log_probs(_rows(case), temperature=0.99)
    strategy.close()


def _generate(config: Any, case: Case) -> None:
    from roll_core.inference.base import GenerationRequest, SamplingParams

    strategy = _strategy(config, "actor_infer", case)
    strategy.start()
    params = SamplingParams(max_new_tokens=case.response, temperature=1.0)
    requests = [
        GenerationRequest(str(row), tuple((row + 7 * n) % 1000 for n in range(case.prompt)), params, row)
        for row in range(case.rows)
    ]
    list(strategy.generate(requests))
    strategy.stop()


def _rows(case: Case) -> Any:
    """Rows of which one is as long as can be, and none much shorter: different prompts, so that none is shared."""
    import torch

    from roll_core.data import DataProto

    number, generator = case.rows * case.micro_batches, torch.Generator().manual_seed(1)
    prompts = torch.randint(2, case.sizes["vocab_size"], (number, case.prompt), generator=generator)
    responses = torch.randint(2, case.sizes["vocab_size"], (number, case.response), generator=generator)
    lengths = torch.full((number,), case.response)
    lengths[1::2] -= 1
    mask = torch.arange(case.response) < lengths[:, None]
    rows = DataProto(
        {
            "prompts": prompts,
            "prompt_lengths": torch.full((number,), case.prompt),
            "responses": responses * mask,
            "response_lengths": lengths,
            "response_mask": mask,
            "advantages": torch.randn(number, case.response, generator=generator),
        }
    )
    rows.meta_info["temperature"] = 0.99
    return rows


def resident(key: str) -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM at its highest."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measure(case: Case) -> dict[str, Any]:
    """The estimate and the measured growth of this process."""
    tiny = replace(case, name=TINY, sizes=_sizes(32, 64, 2, 1024, heads=4), rows=2, prompt=8, response=8)
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate((tiny, case)):
            # Made in another process, so that this one's memory does not know the model yet.
            subprocess.run(
                [sys.executable, __file__, "--write", json.dumps(asdict(one)), f"{folder}/{number}"], check=True
            )
        run(tiny, Path(folder) / "0")
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Forgets the highest so far.
        run(case, Path(folder) / "1")
        measured = resident("VmHWM") - before
        return {"need": estimate(case, Path(folder) / "1"), "measured": measured}


def in_processes(case: Case) -> dict[str, Any]:
    """`measure` in a fresh interpreter per rank; what the largest of them found."""
    command = [sys.executable, __file__, "--measure", json.dumps(asdict(case))]
    environ = os.environ | QUIET | GIVE_BACK | {"PYTHONPATH": str(Path(__file__).parents[1])}
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(case.ranks):
            with (Path(folder) / f"{rank}.out").open("w") as output, (Path(folder) / f"{rank}.err").open("w") as errors:
                own = environ | {RANK: f"{rank},{port if case.ranks > 1 else 0}"}
                started.append(subprocess.Popen(command, env=own, stdout=output, stderr=errors))
        found: list[dict[str, Any]] = []
        for rank, process in enumerate(started):
            if process.wait():
                raise SystemExit(f"case {case.name} failed\n{(Path(folder) / f'{rank}.err').read_text()}")
            found.append(json.loads((Path(folder) / f"{rank}.out").read_text().splitlines()[-1]))
    return max(found, key=lambda one: int(one["measured"]))


def _free_port() -> int:
    """A port that is free now, as is the one after it, most probably."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_model(Case(**json.loads(arguments.write[0])), Path(arguments.write[1]))
        return
    if arguments.measure:
        print(json.dumps(measure(Case(**json.loads(arguments.measure)))))
        return
    known = {case.name: case for case in CASES}
    results, outside = {}, []
    print(f"{'case':20} {'estimated':>10} {'measured':>10} {'ratio':>6}")
    for name in arguments.cases.split(","):
        found = in_processes(known[name])
        estimated, measured = found["need"]["peak"], found["measured"]
        ratio = estimated / measured
        results[name] = found | {"ratio": ratio}
        print(f"{name:20} {estimated / 2**20:7.0f} MiB {measured / 2**20:7.0f} MiB {ratio:6.2f}", flush=True)
        if abs(ratio - 1) > TOLERANCE:
            outside.append(name)
    print(f"record: {write_record('memory_plan', ('torch', 'transformers'), results)}")
    if outside:
        raise SystemExit(f"more than {TOLERANCE:.0%} off: {', '.join(outside)}")


if __name__ == "__main__":
    main()
