"""Tiny models, batches and losses, and two-rank runs, for the training tests."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config, Qwen3MoeConfig

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.data import DataProto
from roll_core.platforms.cpu import CpuPlatform
from roll_core.training import MicroBatch, Tally, TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.training.process_group import join

VOCABULARY = 61
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 61}


def write_model(folder: Path, *, tied: bool = False, family: str = "qwen3", **changes: Any) -> Path:
    """A random model in Hugging Face format, larger in scale than usual so that its log-probabilities differ."""
    torch.manual_seed(7)
    config_class = {"qwen3": Qwen3Config, "llama": LlamaConfig}[family]
    config = config_class(
        **(SIZES | changes),
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def write_expert_model(folder: Path) -> Path:
    """A random mixture of experts, each of them a set of tensors of its own in the folder."""
    torch.manual_seed(7)
    config = Qwen3MoeConfig(
        **SIZES,
        num_key_value_heads=2,
        head_dim=16,
        moe_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def role(
    model: Path, *, name: str = "actor_train", strategy: dict[str, Any] | None = None, **keys: Any
) -> WorkerConfig:
    """A role's config in float32; nested keys may be given as `training_args={...}`."""
    model_args = {
        "model_name_or_path": str(model),
        "dtype": "fp32",
        "disable_gradient_checkpointing": True,
    } | keys.pop("model_args", {})
    training_args = {
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 3,
    } | keys.pop("training_args", {})
    return WorkerConfig.model_validate(
        {
            "name": name,
            "model_args": model_args,
            "training_args": training_args,
            "strategy_args": {"strategy_name": "fsdp2_train", "strategy_config": strategy or {}},
            "infer_batch_size": 3,
        }
        | keys
    )


def strategy_for(
    config: WorkerConfig, *, rank: int = 0, world_size: int = 1, plan: TrainPlan | None = None
) -> Fsdp2Strategy:
    """A strategy that has been set up on this rank; several ranks have joined their group before."""
    context = WorkerContext(config.name or "", rank, world_size, timeout_s=60)
    strategy = Fsdp2Strategy(config, CpuPlatform(), context)
    strategy.setup(plan)
    return strategy


def batch(num_rows: int = 7, *, seed: int = 3, prompt: int = 6, response: int = 9) -> DataProto:
    """Rows of random tokens and lengths. The first row is as long as can be, one response is a single token."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, VOCABULARY, (num_rows, prompt + response), generator=generator)
    prompt_lengths = torch.randint(1, prompt + 1, (num_rows,), generator=generator)
    response_lengths = torch.randint(1, response + 1, (num_rows,), generator=generator)
    prompt_lengths[:1], response_lengths[:1] = prompt, response
    response_lengths[1:2] = 1
    column = torch.arange(prompt)
    is_prompt = column >= (prompt - prompt_lengths)[:, None]
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
    """-advantage * log-probability over `num_tokens`, less `entropy_weight` times the entropy."""

    num_tokens: int
    entropy_weight: float = 0.0

    needs_values = False

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_weight > 0

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]:
        assert micro.log_probs is not None
        per_token = -micro.columns["advantages"] * micro.log_probs
        if micro.entropy is not None:
            per_token = per_token - self.entropy_weight * micro.entropy
        counted = per_token[micro.response_mask]
        total = float(micro.log_probs.detach()[micro.response_mask].sum())
        tallies = {
            "mean_log_prob": Tally(total, counted.numel()),
            "lowest": Tally(float(counted.detach().min()), counted.numel(), "min"),
        }
        return counted.sum() / self.num_tokens, tallies


def advantage_loss(rows: DataProto, entropy_weight: float = 0.0) -> AdvantageLoss:
    """The loss normalised by all tokens of a mini-batch."""
    return AdvantageLoss(int(rows["response_mask"].sum()), entropy_weight)


@dataclass(frozen=True)
class SquaredValueLoss:
    """Squared distance of values from the column `returns`, over `num_tokens`."""

    num_tokens: int
    needs_entropy = False
    needs_values = True

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, dict[str, Tally]]:
        assert micro.values is not None and micro.log_probs is None
        error = (micro.values - micro.columns["returns"])[micro.response_mask]
        return 0.5 * error.square().sum() / self.num_tokens, {
            "value": Tally(float(error.detach().sum()), error.numel())
        }


def gradients(strategy: Fsdp2Strategy, rows: DataProto, loss: Any) -> dict[str, torch.Tensor]:
    """Whole gradients by name, from the pass that precedes an optimiser step."""
    from torch.distributed.tensor import DTensor

    from roll_core.training.microbatch import cut_for_training
    from roll_core.training.stepping import add_gradients

    add_gradients(strategy.model, rows, loss, cut_for_training(strategy.role))
    found = {}
    for name, parameter in strategy.model.module.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        found[name] = (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone()
        parameter.grad = None
    return found


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Norm of the difference over the norm, all tensors together."""
    assert left.keys() == right.keys()
    difference = sum(float((left[name].double() - right[name].double()).square().sum()) for name in left) ** 0.5
    return difference / sum(float(right[name].double().square().sum()) for name in right) ** 0.5


Job = tuple[Callable[..., Any], tuple[Any, ...]]


def run_ranks(jobs: dict[str, Job], num_ranks: int, folder: Path) -> dict[str, list[Any]]:
    """What each job, `function(rank, num_ranks, *arguments)`, returns on each rank, all in one set of processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(_rank, (jobs, num_ranks, port, folder), nprocs=num_ranks)
    results = [torch.load(folder / f"results-{rank}", weights_only=False) for rank in range(num_ranks)]
    return {name: [result[name] for result in results] for name in jobs}


def _rank(rank: int, jobs: dict[str, Job], num_ranks: int, port: int, folder: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    context = WorkerContext("test", rank, num_ranks, master_port=port, timeout_s=120)
    join(CpuPlatform(), context)
    results = {name: function(rank, num_ranks, *arguments) for name, (function, arguments) in jobs.items()}
    torch.save(results, folder / f"results-{rank}")
    distributed.destroy_process_group()
