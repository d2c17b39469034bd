"""Checkpoints of a trainer: a resumed run goes on as if never interrupted, and what does not fit is refused."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.errors import CheckpointError
from roll_core.training import TrainPlan
from roll_core.training.fsdp2 import Fsdp2Strategy
from tests.training import rank_jobs as jobs
from tests.training.support import advantage_loss, batch, role, run_ranks, strategy_for, write_model

PLAN = TrainPlan(8)


@pytest.fixture
def strategy(model: Path) -> Iterator[Fsdp2Strategy]:
    made = strategy_for(role(model), plan=PLAN)
    yield made
    made.close()


@pytest.fixture(scope="module")
def saved(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after one step, not to be changed."""
    folder = tmp_path_factory.mktemp("saved")
    strategy = strategy_for(role(model), plan=PLAN)
    rows = batch(5)
    strategy.train_step(rows, advantage_loss(rows))
    strategy.save(folder)
    strategy.close()
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """A checkpoint to damage."""
    return Path(shutil.copytree(saved, tmp_path / "copied"))


@pytest.mark.parametrize("keys", [{}, {"strategy": {"offload_policy": True}}, {"model_args": {"dtype": "bf16"}}])
def test_three_steps_after_resuming_equal_the_uninterrupted_ones_bit_for_bit(
    model: Path, tied: Path, tmp_path: Path, keys: dict[str, Any]
) -> None:
    for number, folder in enumerate((model, tied)):
        straight, resumed, equal = jobs.interrupt_and_resume(0, 1, folder, batch(7), tmp_path / str(number), keys)
        assert resumed == straight and equal
        assert straight[0]["lr"] > 0 and len({step["loss"] for step in straight}) == 3


def test_two_ranks_resume_bit_for_bit(model: Path, tied: Path, tmp_path: Path) -> None:
    rows = batch(7)
    work: dict[str, Any] = {
        "untied": (jobs.interrupt_and_resume, (model, rows, tmp_path / "untied", {})),
        "tied": (jobs.interrupt_and_resume, (tied, rows, tmp_path / "tied", {})),
        "offloaded": (
            jobs.interrupt_and_resume,
            (model, rows, tmp_path / "offloaded", {"strategy": {"offload_policy": True}}),
        ),
    }
    for of_ranks in run_ranks(work, 2, tmp_path).values():
        for straight, resumed, equal in of_ranks:
            assert resumed == straight and equal
        # Ranks draw different random numbers, and each goes on with its own.
        assert of_ranks[0][0][0]["random"] != of_ranks[1][0][0]["random"]
    # One rank can go on from what two have saved: the weights are the same whole tensors.
    strategy = strategy_for(role(model), plan=PLAN)
    strategy.load(tmp_path / "untied")
    assert strategy.optimizer is not None and strategy.optimizer.schedule.last_epoch == 2
    strategy.close()


def damage_nothing_there(folder: Path) -> None:
    shutil.rmtree(folder / "dcp")


def damage_listing(folder: Path) -> None:
    (folder / "dcp" / ".metadata").unlink()


def damage_listing_cut(folder: Path) -> None:
    file = folder / "dcp" / ".metadata"
    file.write_bytes(file.read_bytes()[:100])


def damage_weights(folder: Path) -> None:
    file = folder / "dcp" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damage_weights_gone(folder: Path) -> None:
    (folder / "dcp" / "__0_0.distcp").unlink()


def damage_facts(folder: Path) -> None:
    (folder / "dcp" / "trainer.json").write_text('{"format": 1, "sche', encoding="utf-8")


def damage_format(folder: Path) -> None:
    (folder / "dcp" / "trainer.json").write_text('{"format": 99}', encoding="utf-8")


def damage_random_state(folder: Path) -> None:
    file = folder / "dcp" / "rng-0.pt"
    file.write_bytes(file.read_bytes()[:50])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_nothing_there, r"trainer\.json is missing; there is nothing to resume from in"),
        (damage_listing, r"has no \.metadata: it was never finished"),
        (damage_listing_cut, r"\.metadata cannot be read"),
        (damage_weights, r"__0_0\.distcp is cut short: \d+ of at least \d+ bytes; resume from another checkpoint"),
        (damage_weights_gone, r"__0_0\.distcp is missing; resume from another checkpoint"),
        (damage_facts, r"trainer\.json cannot be read"),
        (damage_format, r"trainer\.json has format 99, and this version reads format 1"),
        (damage_random_state, r"rng-0\.pt cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_the_name_of_its_file(
    copied: Path, strategy: Fsdp2Strategy, damage: Any, message: str
) -> None:
    before = {name: tensor.clone() for name, tensor in strategy.model.tensors().items()}
    damage(copied)
    with pytest.raises(CheckpointError, match=message):
        strategy.load(copied)
    assert all(torch.equal(before[name], tensor) for name, tensor in strategy.model.tensors().items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, r"has no 'model\.model\.layers\.2\.[\w.]+', which this role needs"),
        (
            {"intermediate_size": 40},
            r"'model\.[\w.]+' in .* is \[48, 32\] torch\.float32, and this role's is \[40, 32\]",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_the_name_of_its_tensor(
    saved: Path, model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    other = write_model(tmp_path / "other", **changes)
    strategy = strategy_for(role(other), plan=PLAN)
    with pytest.raises(CheckpointError, match=message):
        strategy.load(saved)
    strategy.close()


def test_another_precision_is_refused(saved: Path, model: Path) -> None:
    strategy = strategy_for(role(model, model_args={"dtype": "bf16"}))
    with pytest.raises(CheckpointError, match=r"torch\.float32, and this role's is .*torch\.bfloat16"):
        strategy.load(saved)
    strategy.close()


def test_a_scoring_role_reads_the_weights_alone(saved: Path, model: Path, strategy: Fsdp2Strategy) -> None:
    scorer = strategy_for(role(model))
    scorer.load(saved)
    strategy.load(saved)
    rows = batch(4)
    assert torch.equal(scorer.log_probs(rows)["log_probs"], strategy.log_probs(rows)["log_probs"])
    scorer.close()


def test_what_a_scoring_role_saved_cannot_be_trained_on(model: Path, tmp_path: Path, strategy: Fsdp2Strategy) -> None:
    scorer = strategy_for(role(model))
    scorer.save(tmp_path)
    scorer.close()
    with pytest.raises(CheckpointError, match="was saved by a role without an optimiser"):
        strategy.load(tmp_path)


def test_random_state_of_another_kind_of_device_is_left_with_a_warning(
    copied: Path, strategy: Fsdp2Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    file = copied / "dcp" / "rng-0.pt"
    state = torch.load(file)
    torch.save(state | {"device_type": "pretend", "device": torch.zeros(16, dtype=torch.uint8)}, file)
    with caplog.at_level(logging.WARNING):
        strategy.load(copied)
    assert "was saved on 'pretend': random numbers of 'cpu' start afresh" in caplog.text


def test_a_checkpoint_of_fewer_ranks_lacks_random_state_with_a_warning(
    copied: Path, strategy: Fsdp2Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    (copied / "dcp" / "rng-0.pt").unlink()
    with caplog.at_level(logging.WARNING):
        strategy.load(copied)
    assert "rank 0 goes on with a fresh random state" in caplog.text


def test_the_saved_learning_rate_goes_on_with_a_warning(
    saved: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = strategy_for(role(model, training_args={"learning_rate": 0.5}), plan=PLAN)
    with caplog.at_level(logging.WARNING):
        strategy.load(saved)
    rows = batch(3)
    assert strategy.train_step(rows, advantage_loss(rows))["lr"] == 1e-2
    assert "the checkpoint's learning rate [0.01] goes on, not [0.5]" in caplog.text
    strategy.close()


def test_the_facts_are_readable(saved: Path) -> None:
    facts = json.loads((saved / "dcp" / "trainer.json").read_text(encoding="utf-8"))
    assert facts["format"] == 1 and facts["schedule"]["last_epoch"] == 1
