"""What each process of a several-rank test does. Kept apart from the tests so that new processes can import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from roll_core.data import DataProto
from roll_core.training import TrainPlan, saved_state
from roll_core.training.fsdp2 import Fsdp2Strategy
from tests.training.support import advantage_loss, gradients, role, strategy_for


def share_of(rows: DataProto, rank: int, sizes: list[int]) -> DataProto:
    """The rank's consecutive share of the rows."""
    start = sum(sizes[:rank])
    return rows.slice(start, start + sizes[rank])


def gradients_of_share(
    rank: int, num_ranks: int, model: Path, rows: DataProto, sizes: list[int], keys: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Gradients over all ranks' shares."""
    strategy = strategy_for(role(model, **keys), rank=rank, world_size=num_ranks, plan=TrainPlan(10))
    found = gradients(strategy, share_of(rows, rank, sizes), advantage_loss(rows, entropy_weight=0.1))
    strategy.close()
    return found


def train(
    rank: int, num_ranks: int, model: Path, rows: DataProto, sizes: list[int], steps: int, keys: dict[str, Any]
) -> tuple[list[dict[str, float]], dict[str, torch.Tensor], torch.Tensor]:
    """Metrics of each step, the weights afterwards, and the share's log-probabilities under them."""
    strategy = strategy_for(role(model, **keys), rank=rank, world_size=num_ranks, plan=TrainPlan(steps))
    mine = share_of(rows, rank, sizes)
    metrics = [strategy.train_step(mine, advantage_loss(rows)) for _ in range(steps)]
    scored = strategy.log_probs(mine)["log_probs"]
    weights = {name: tensor.clone() for bucket in strategy.weights(4096) for name, tensor in bucket}
    strategy.close()
    return metrics, weights, scored


def interrupt_and_resume(
    rank: int, num_ranks: int, model: Path, rows: DataProto, folder: Path, keys: dict[str, Any]
) -> tuple[list[dict[str, float]], list[dict[str, float]], bool]:
    """Metrics of the three steps after a checkpoint, uninterrupted and resumed, and whether all state is equal."""
    sizes = [len(rows) - 2 * (num_ranks - 1)] + [2] * (num_ranks - 1)
    mine, loss = share_of(rows, rank, sizes), advantage_loss(rows)

    def start() -> Fsdp2Strategy:
        config = role(model, training_args={"lr_scheduler_type": "linear", "warmup_steps": 3}, **keys)
        return strategy_for(config, rank=rank, world_size=num_ranks, plan=TrainPlan(8))

    first = start()
    for _ in range(2):
        first.train_step(mine, loss)
    first.save(folder)
    straight = [first.train_step(mine, loss) | {"random": float(torch.rand(()))} for _ in range(3)]
    second = start()
    second.load(folder)
    resumed = [second.train_step(mine, loss) | {"random": float(torch.rand(()))} for _ in range(3)]
    expected, found = (saved_state.tensors(strategy.model, strategy.optimizer) for strategy in (first, second))
    equal = expected.keys() == found.keys() and all(same(expected[name], found[name]) for name in expected)
    second.close()
    first.close()
    return straight, resumed, equal


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether this rank's parts are equal bit for bit."""
    parts = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in (left, right)]
    return torch.equal(*parts)


def critic_values(rank: int, num_ranks: int, model: Path, rows: DataProto, sizes: list[int]) -> torch.Tensor:
    """The share's values from a critic that was just made."""
    strategy = strategy_for(role(model, name="critic"), rank=rank, world_size=num_ranks)
    values = strategy.values(share_of(rows, rank, sizes))["values"]
    strategy.close()
    assert isinstance(values, torch.Tensor)
    return values
