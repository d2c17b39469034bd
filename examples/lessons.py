"""Supervised training of the examples' tiny models: what a model knows before it learns by reinforcement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

Report = Callable[[int, float], None]
"""Called with each step, counted from 1, and its loss."""
Sample = tuple[list[int], list[bool]]
"""Token ids of a dialogue, and which of them are the model's to say."""
Batch = TypeVar("Batch")


def train(
    model: Any,
    optimizer: torch.optim.Optimizer,
    share_of_rate: Callable[[int], float],
    batches: Iterable[Batch],
    loss_of: Callable[[Batch], torch.Tensor],
    report: Report,
) -> None:
    """Train the model in place, a step for each batch.

    Args:
        share_of_rate: what part of the optimizer's learning rate a step takes; steps count from 0.
    """
    import torch

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share_of_rate)
    model.train()
    for step, batch in enumerate(batches, start=1):
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        report(step, loss.item())
    model.eval()


def loss_of_answers(model: Any, batch: Sequence[Sample], pad_id: int) -> torch.Tensor:
    """Mean cross-entropy of the tokens that are the model's to say."""
    import torch

    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), pad_id)
    labels = torch.full((len(batch), width), -100)
    for row, (tokens, said) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, : len(tokens)] = torch.where(torch.tensor(said), torch.tensor(tokens), -100)
    # Rows are padded on the right, where causal attention cannot see the padding: no mask is needed.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    is_said = targets != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[is_said]), targets[is_said])


def silence(step: int, loss: float) -> None:
    """A `Report` that says nothing."""


def show_progress(steps: int) -> Report:
    """A `Report` of so many steps: one line that is rewritten on a terminal, else a line for each quarter."""
    begin = time.monotonic()
    is_terminal = sys.stdout.isatty()

    def report(step: int, loss: float) -> None:
        line = f"warm start: step {step}/{steps}, loss {loss:.3f}, {time.monotonic() - begin:.0f} s"
        if is_terminal:
            print(f"\r{line}", end="\n" if step == steps else "", flush=True)
        elif step % max(1, steps // 4) == 0 or step == steps:
            print(line, flush=True)

    return report


def prepare_torch() -> None:
    """What all of these small trainings want of this process."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # The models are so small that a second thread gains little, and makes training many times slower on a busy machine.
    torch.set_num_threads(1)
