"""The optimiser: AdamW, a learning-rate schedule, and steps that skip what is not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler

from roll_core.training.base import TrainPlan

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig


@dataclass(frozen=True)
class StepReport:
    """One optimiser step: the gradients' norm over all ranks before clipping, the rate used, and whether it counted."""

    grad_norm: float
    lr: float
    is_skipped: bool


class Optimizer:
    """AdamW over the trainable parameters with one of transformers' schedules."""

    def __init__(self, model: nn.Module, role: WorkerConfig, plan: TrainPlan) -> None:
        arguments = role.training_args
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.adam = torch.optim.AdamW(
            self.parameters,
            lr=arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            eps=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            fused=True,
        )
        self._make_state()
        self.schedule = _schedule(self.adam, role, plan)
        self.max_grad_norm = plan.max_grad_norm

    def step(self) -> StepReport:
        """Clip and step. Gradients that are not finite change nothing: neither weights, moments nor schedule."""
        lr = float(self.schedule.get_last_lr()[0])
        grad_norm = self._clip()
        is_skipped = not math.isfinite(grad_norm)
        if not is_skipped:
            self.adam.step()
            self.schedule.step()
        self.adam.zero_grad(set_to_none=True)
        return StepReport(grad_norm, lr, is_skipped)

    def _clip(self) -> float:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.max_grad_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.max_grad_norm, norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def _make_state(self) -> None:
        # Made here instead of by the first step, so that a checkpoint can be loaded into it.
        for parameter in self.parameters:
            self.adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def move(self, device: torch.device) -> None:
        """Move the moments and counts."""
        for state in self.adam.state.values():
            for name, value in state.items():
                state[name] = value.to(device)


def _schedule(adam: torch.optim.Optimizer, role: WorkerConfig, plan: TrainPlan) -> LRScheduler:
    from transformers import get_scheduler

    arguments = role.training_args
    warmup = arguments.warmup_steps or math.ceil(arguments.warmup_ratio * plan.total_steps)
    schedule = get_scheduler(
        arguments.lr_scheduler_type, adam, num_warmup_steps=int(warmup), num_training_steps=plan.total_steps
    )
    assert isinstance(schedule, LRScheduler)
    return schedule
