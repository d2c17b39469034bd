"""Prompts read once for several responses: the same log-probabilities and gradients as whole rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from roll_core.data import DataProto
from roll_core.training import TrainPlan, shared_prompts
from roll_core.training.fsdp2 import Fsdp2Strategy
from roll_core.training.microbatch import Rows
from tests.training.support import advantage_loss, batch, distance, gradients, role, strategy_for, write_model

GROUPS = [0, 1, 0, 2, 1, 0, 3]
"""The prompt that each of seven rows has."""
CUTS = {"all": 7, "some": 3, "one": 1}


@pytest.fixture(params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_model(tmp_path, family=request.param)


def grouped(*, ragged: bool) -> DataProto:
    """Rows of four different prompts; without `ragged`, all prompts and all responses are of one length."""
    rows = batch(7)
    if not ragged:
        full = batch(7, seed=5)
        full.batch["prompts"] = torch.randint(2, 60, full["prompts"].shape)
        full.batch["responses"] = torch.randint(2, 60, full["responses"].shape)
        full.batch["prompt_lengths"][:] = full["prompts"].shape[1]
        full.batch["response_lengths"][:] = full["responses"].shape[1]
        full.batch["response_mask"][:] = True
        rows = full
    prompts = {name: rows[name][torch.tensor(GROUPS)] for name in ("prompts", "prompt_lengths")}
    return rows.with_columns(**prompts)


def strategies(model: Path, opened: list[Fsdp2Strategy], rows_each: int) -> tuple[Fsdp2Strategy, Fsdp2Strategy]:
    """One that shares prompts, and one that does not."""
    for _ in range(2):
        keys = {"training_args": {"per_device_train_batch_size": rows_each}, "infer_batch_size": rows_each}
        opened.append(strategy_for(role(model, **keys), plan=TrainPlan(4)))
    sharing, plain = opened
    assert sharing.model.shares_prompts
    plain.model.shares_prompts = False
    return sharing, plain


@pytest.mark.parametrize("ragged", [True, False], ids=["ragged", "equal"])
@pytest.mark.parametrize("rows_each", CUTS.values(), ids=CUTS)
def test_gradients_are_those_of_whole_rows(
    model: Path, opened: list[Fsdp2Strategy], rows_each: int, ragged: bool
) -> None:
    rows = grouped(ragged=ragged)
    sharing, plain = strategies(model, opened, rows_each)
    loss = advantage_loss(rows, entropy_weight=0.1)
    assert distance(gradients(sharing, rows, loss), gradients(plain, rows, loss)) < 1e-6


@pytest.mark.parametrize("ragged", [True, False], ids=["ragged", "equal"])
def test_log_probs_are_those_of_whole_rows(model: Path, opened: list[Fsdp2Strategy], ragged: bool) -> None:
    rows = grouped(ragged=ragged)
    sharing, plain = strategies(model, opened, 7)
    ours = sharing.log_probs(rows, temperature=0.7, entropy=True)
    theirs = plain.log_probs(rows, temperature=0.7, entropy=True)
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(ours[name], theirs[name], atol=2e-6, rtol=1e-5)


def test_each_prompt_is_read_once(model: Path, opened: list[Fsdp2Strategy], monkeypatch: pytest.MonkeyPatch) -> None:
    sharing, _plain = strategies(model, opened, 7)
    read: list[tuple[int, ...]] = []
    sharing.model.module.register_forward_pre_hook(
        lambda module, given, options: read.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    sharing.log_probs(grouped(ragged=True))
    assert read == [(4, 6), (7, 8)]


def test_rows_without_a_prompt_in_common_are_read_whole(model: Path, opened: list[Fsdp2Strategy]) -> None:
    given = Rows(batch(4)).model_input([0, 1, 2, 3], torch.device("cpu"))
    assert not shared_prompts.has_shared_prompts(given)


def test_prompts_of_other_lengths_are_other_prompts() -> None:
    rows = batch(2)
    rows.batch["prompts"][:] = torch.tensor([0, 0, 0, 0, 5, 5])
    rows.batch["prompt_lengths"][:] = torch.tensor([2, 3])
    given = Rows(rows).model_input([0, 1], torch.device("cpu"))
    assert given.prompt_of_row is not None
    assert given.prompt_of_row.tolist() == [0, 1]


def test_a_model_that_recomputes_activations_reads_whole_rows(tmp_path: Path, opened: list[Fsdp2Strategy]) -> None:
    config = role(write_model(tmp_path), model_args={"disable_gradient_checkpointing": False})
    opened.append(strategy_for(config, plan=TrainPlan(4)))
    assert not opened[0].model.shares_prompts
