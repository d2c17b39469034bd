"""Batch arithmetic: an optimiser step sees as many rows as before, though more ranks have rows of their own."""

from __future__ import annotations

from roll_core.migrate.draft import Draft
from roll_core.migrate.roles import Role


def keep_mini_batch(draft: Draft, role: Role, split: int) -> None:
    """Divide the rows per rank by the number of devices that shared rows before and no longer do."""
    training = role.under("training_args")
    if split <= 1 or not training:
        return
    rows = training.get("per_device_train_batch_size", 8)
    steps = training.get("gradient_accumulation_steps", 1)
    if type(rows) is not int or type(steps) is not int:
        draft.note(role.at("training_args"), f"{split} times as many ranks have rows now: divide the rows per rank")
        return
    per_rank = _rows_per_rank(draft, role, rows * steps, split)
    if per_rank is None:
        return
    fitting = next(size for size in range(min(rows, per_rank), 0, -1) if per_rank % size == 0)
    mini_batch = per_rank * role.ranks
    reason = f"{split} times as many ranks have rows of their own now; an optimiser step has {mini_batch} rows"
    if fitting != rows:
        draft.set(role.at("training_args", "per_device_train_batch_size"), fitting, reason)
    if per_rank // fitting != steps:
        draft.set(role.at("training_args", "gradient_accumulation_steps"), per_rank // fitting, reason)


def _rows_per_rank(draft: Draft, role: Role, before: int, split: int) -> int | None:
    """Rows of one optimiser step on one rank; None where no number of them makes whole mini-batches."""
    if before % split == 0:
        return before // split
    was = before * role.ranks // split
    samples = _samples(draft)
    ceiling = max(1, before // split)
    fitting = [rows for rows in range(ceiling, 0, -1) if samples % (rows * role.ranks) == 0]
    where = role.at("training_args")
    if not fitting:
        what = f"an optimiser step had {was} rows, which {role.ranks} ranks cannot share evenly; choose the batch sizes"
        draft.note(where, what)
        return None
    now = fitting[0] * role.ranks
    draft.note(where, f"an optimiser step had {was} rows and has {now} now, since each of {role.ranks} ranks needs one")
    return fitting[0]


def _samples(draft: Draft) -> int:
    prompts = draft.get("rollout_batch_size", default=128)
    responses = draft.get("num_return_sequences_in_group", default=1)
    return prompts * responses if type(prompts) is int and type(responses) is int else 0
