"""One rank of a run with experts that are units of their own: python patch_ranks.py RANK PORT KIND FOLDER.

Rank 0 has one token and rank 1 has many, so that their routers choose different numbers of experts. KIND is
`patched` or `unpatched`. Writes FOLDER/rank-RANK.json: what this rank saw.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from roll_ascend.patches.moe_expert_patch import MoeExpertPatch, separate
from roll_ascend.patches.tiled_mlp import TiledMlp
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from roll_core.training.fsdp2_config import Fsdp2Config, WrapPolicy
from roll_core.training.shard import shard

NUM_EXPERTS = 8
HANGS_AFTER_S = 10.0
"""Far more than a forward takes; gloo then ends what would wait for ever."""


def expert_model(**changes: Any) -> Any:
    """A random model whose two layers have eight experts each, two per token."""
    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    keys = {"intermediate_size": 48, "moe_intermediate_size": 16, "head_dim": 16, "vocab_size": 61}
    routing = {"num_experts": NUM_EXPERTS, "num_experts_per_tok": 2, "norm_topk_prob": True}
    config = Qwen3MoeConfig(**(sizes | keys | routing | changes), initializer_range=0.2)
    # The kernels for fused experts know no float64; transformers 4 has no such key and ignores it.
    config._experts_implementation = "eager"
    return AutoModelForCausalLM.from_config(config)


class RoutedExperts(nn.ModuleList):
    """Experts that run only where they have tokens, as in transformers 4.57."""

    def forward(self, hidden: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(hidden)
        for number in indices.unique().tolist():
            tokens, slots = torch.where(indices == number)
            result.index_add_(0, tokens, self[number](hidden[tokens]) * weights[tokens, slots, None])
        return result


def with_routed_experts(model: Any) -> Any:
    """The layout of transformers 4.57 without its patch, in either version."""
    for layer in model.model.layers:
        if not isinstance(layer.mlp.experts, nn.ModuleList):
            layer.mlp.experts = RoutedExperts(separate(layer.mlp.experts, model.config))
    return model


def used_experts(model: Any, tokens: torch.Tensor) -> list[list[int]]:
    """For each layer, the experts that these tokens are routed to."""
    with torch.no_grad():
        logits = model(tokens, output_router_logits=True).router_logits
    return [sorted(set(one.topk(2, dim=-1).indices.flatten().tolist())) for one in logits]


def rows(rank: int) -> torch.Tensor:
    """A rank's token ids: one token on rank 0, forty on rank 1."""
    return torch.randint(0, 61, (1, 1) if rank == 0 else (4, 10), generator=torch.Generator().manual_seed(rank))


def step(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Logits, after a backward pass of a loss that adds up over rows."""
    logits = model(tokens).logits
    logits.square().sum().backward()
    return logits.detach()


def whole_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every gradient, gathered from all ranks."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {
        name: gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        for name, gradient in found.items()
    }


def split_by_expert(model: Any) -> Any:
    """Shard as the 30B example's `wrap_policy` does: each expert a unit, inside the unit of its block."""
    blocks = ["Qwen3MoeAttention", "Qwen3MoeSparseMoeBlock"]
    policy = WrapPolicy(moe_experts=["Qwen3MoeMLP"], transformer_layer_cls_to_wrap=blocks)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    shard(model, mesh, Fsdp2Config(wrap_policy=policy, apply_expert_patch=True), torch.float32)
    return model


def main(rank: int, port: int, is_patched: bool, folder: Path) -> None:
    torch.set_num_threads(1)
    timeout = timedelta(seconds=120 if is_patched else HANGS_AFTER_S)
    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timeout)
    record = Record(folder / f"rank-{rank}.json")
    (train if is_patched else score_unpatched)(rank, record)
    dist.destroy_process_group()


class Record(dict[str, Any]):
    """What a rank saw, on disk as soon as it is known: the process may never end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def add(self, **facts: Any) -> None:
        """Note something."""
        self.update(facts)
        self.path.write_text(json.dumps(self))


def train(rank: int, record: Record) -> None:
    """Both patches, two layers, forward and backward."""
    alone = with_routed_experts(expert_model())
    record.add(used=used_experts(alone, rows(rank)))
    expected = [step(alone, rows(one)) for one in range(2)][rank]
    reference = whole_gradients(alone)
    model = expert_model()
    MoeExpertPatch().apply(model, {})
    TiledMlp().apply(model, {"num_shards": 3})
    split_by_expert(model)
    found = step(model, rows(rank))
    gradients = whole_gradients(model)
    assert gradients.keys() == reference.keys()
    record.add(outputs=distance(found, expected))
    record.add(gradients=max(distance(gradients[name], reference[name]) for name in reference))


@torch.no_grad()
def score_unpatched(rank: int, record: Record) -> None:
    """One layer of experts without the patch: as many experts on both ranks, but others; then fewer on one."""
    alone = with_routed_experts(expert_model(num_hidden_layers=1))
    model = split_by_expert(with_routed_experts(expert_model(num_hidden_layers=1)))
    one_token = torch.tensor([[10 * rank]])
    record.add(used_by_one_token=used_experts(alone, one_token)[0])
    record.add(one_token=distance(model(one_token).logits, alone(one_token).logits))
    record.add(used=used_experts(alone, rows(rank)))
    dist.barrier()
    started = time.monotonic()
    try:
        model(rows(rank))
        record.add(forward="ended")
        dist.barrier()
    except RuntimeError as error:
        record.add(error=str(error), after_s=time.monotonic() - started)
        raise


def distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """Norm of the difference over the norm; absolute where there is nothing to divide by."""
    return float((left - right).norm() / right.norm().clamp(min=1e-6))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "patched", Path(sys.argv[4]))
