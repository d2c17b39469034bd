"""Running a batch through a model in micro-batches: to add up gradients, or to score it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from roll_core.data import DataProto
from roll_core.training.base import MicroBatch, Tally, TokenLoss
from roll_core.training.forward import token_scores, token_values
from roll_core.training.microbatch import Cut, ModelInput, Rows, scatter
from roll_core.training.process_group import largest
from roll_core.training.sharded_model import ShardedModel


def add_gradients(model: ShardedModel, batch: DataProto, loss: TokenLoss, cut: Cut) -> dict[str, Tally]:
    """Gradients of the summed loss shares of all micro-batches and ranks, left in the parameters.

    Returns this rank's tallies; `loss` is the sum of its shares.

    Raises:
        ValueError: no rank has a row.
    """
    rows = Rows(batch)
    parts = rows.cut(cut)
    # Every pass gathers weights from all ranks, so all ranks make as many.
    num_passes = largest(len(parts))
    if num_passes == 0:
        raise ValueError("a mini-batch without a row on any rank cannot be trained on")
    model.module.train()
    tallies: dict[str, Tally] = {}
    total = torch.zeros((), device=model.device)
    for number in range(num_passes):
        model.expect_backward(is_last=number == num_passes - 1)
        if number < len(parts):
            share, reported = _share(model, rows, parts[number], loss, cut)
            for name, tally in reported.items():
                tallies[name] = tallies[name] + tally if name in tallies else tally
        else:
            share = _nothing(model, loss.needs_values)
        share.backward()  # type: ignore[no-untyped-call]
        total += share.detach().float()
    tallies["loss"] = Tally(float(total), reduction="sum")
    return tallies


def _share(
    model: ShardedModel, rows: Rows, part: list[int], loss: TokenLoss, cut: Cut
) -> tuple[torch.Tensor, dict[str, Tally]]:
    given = _complete(rows.model_input(part, model.device, cut.width_multiple), model)
    columns = rows.columns(part, model.device)
    mask = columns["response_mask"].bool()
    if loss.needs_values:
        return loss(MicroBatch(mask, columns, values=token_values(model.module, given)))
    temperature = float(rows.batch.meta_info.get("temperature", 1.0))
    scores = token_scores(
        model.module,
        given,
        temperature=temperature,
        entropy=loss.needs_entropy,
        shares_prompts=model.shares_prompts,
    )
    return loss(MicroBatch(mask, columns, log_probs=scores.log_probs, entropy=scores.entropy))


def _complete(given: ModelInput, model: ShardedModel) -> ModelInput:
    """With a blank image, where the model must read one and the rows have none."""
    return given if model.blank is None or given.images is not None else replace(given, blank=model.blank)


def _nothing(model: ShardedModel, with_values: bool) -> torch.Tensor:
    """A share of 0 from one pass over two made-up tokens."""
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    given = _complete(ModelInput([0], token, None, None, token, None), model)
    if with_values:
        return token_values(model.module, given).sum() * 0.0
    return token_scores(model.module, given, temperature=1.0, entropy=False).log_probs.sum() * 0.0


@torch.no_grad()
def score(
    model: ShardedModel,
    batch: DataProto,
    cut: Cut,
    names: Sequence[str],
    run: Callable[[ModelInput], Sequence[torch.Tensor]],
) -> DataProto:
    """Columns `names` [B, R] from what `run` gives for each micro-batch, in the order of the rows."""
    rows = Rows(batch)
    parts = rows.cut(cut)
    model.module.eval()
    results: list[tuple[list[int], Sequence[torch.Tensor]]] = []
    for number in range(largest(len(parts))):
        if number < len(parts):
            given = _complete(rows.model_input(parts[number], model.device, cut.width_multiple), model)
            results.append((parts[number], run(given)))
        else:
            token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
            run(_complete(ModelInput([0], token, None, None, token, None), model))
    model.reshard()
    num_columns = batch["responses"].shape[1]
    return DataProto(
        {
            name: scatter([(part, outputs[index]) for part, outputs in results], len(batch), num_columns)
            for index, name in enumerate(names)
        }
    )
