"""What every training strategy must keep, as tests to run on yours.

    class TestMyTrainer(TrainContract):
        strategy_class = MyStrategy

The models are tiny, random, in float32 and made in place; the numbers are compared with transformers and torch alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.data import DataProto
from roll_core.errors import CheckpointError, Problem
from roll_core.platforms import Ability, Platform
from roll_core.platforms.cpu import CpuPlatform
from roll_core.testing import tiny
from roll_core.testing.contract import Contract, listed
from roll_core.training import TrainPlan, TrainStrategy

Start = Callable[..., TrainStrategy]
RATE, CLIP = 1e-2, 0.5


class TrainContract(Contract):
    """Scores, steps, weights and checkpoints, alike for every trainer."""

    strategy_class: ClassVar[type[TrainStrategy]]
    strategy_name: ClassVar[str] = "fsdp2_train"
    strategy_config: ClassVar[Mapping[str, Any]] = {}
    platform_class: ClassVar[type[Platform]] = CpuPlatform
    has_optimizer: ClassVar[bool] = True
    """False for a strategy that only scores, whose name ends in _infer."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference of a log-prob or of a weight after a step from that of transformers in float32."""

    def abilities(self) -> frozenset[Ability]:
        """Those of the platform."""
        return type(self).platform_class().abilities()

    def role(self, model: Path, **keys: Any) -> WorkerConfig:
        """The role's config; `training_args` may be changed by key."""
        training = {
            "learning_rate": RATE,
            "weight_decay": 0.1,
            "adam_beta2": 0.95,
            "lr_scheduler_type": "constant",
            "per_device_train_batch_size": 3,
        } | keys.pop("training_args", {})
        return WorkerConfig.model_validate(
            {
                "name": "actor_train",
                "model_args": {
                    "model_name_or_path": str(model),
                    "dtype": "fp32",
                    "disable_gradient_checkpointing": True,
                },
                "training_args": training,
                "strategy_args": {"strategy_name": self.strategy_name, "strategy_config": dict(self.strategy_config)},
                "infer_batch_size": 3,
            }
            | keys
        )

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A model folder."""
        return tiny.write_model(tmp_path_factory.mktemp("model"))

    @pytest.fixture(scope="class")
    @classmethod
    def tied(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A model folder of another family, whose output layer is tied to the embedding."""
        return tiny.write_model(tmp_path_factory.mktemp("tied"), "llama", tie_word_embeddings=True)

    @pytest.fixture
    def start(self, model: Path) -> Iterator[Start]:
        """Sets strategies up on this process; each is closed at the end."""
        opened: list[TrainStrategy] = []

        def start_strategy(folder: Path = model, *, trains: bool = True, **keys: Any) -> TrainStrategy:
            platform = type(self).platform_class()
            platform.setup()
            context = WorkerContext("actor_train", timeout_s=60.0)
            strategy = type(self).strategy_class(self.role(folder, **keys), platform, context)
            strategy.setup(TrainPlan(20, max_grad_norm=CLIP) if trains and self.has_optimizer else None)
            opened.append(strategy)
            return strategy

        yield start_strategy
        for strategy in reversed(opened):
            strategy.close()

    @pytest.fixture
    def train(self, start: Start) -> Start:
        """Like `start`, for tests that take steps."""
        if not self.has_optimizer:
            pytest.skip(f"'{self.strategy_name}' only scores: its name does not end in _train")
        return start

    def test_an_unknown_setting_is_refused(self) -> None:
        with pytest.raises(ValidationError):
            type(self).strategy_class.Config(no_such_setting=3)  # type: ignore[call-arg]

    def test_problems_are_sentences(self, model: Path) -> None:
        found = type(self).strategy_class.problems(self.role(model), type(self).platform_class())
        assert isinstance(found, list) and all(isinstance(one, Problem) for one in found), (
            f"problems() is {found!r}, not a list of Problem"
        )
        assert not found, f"the plainest config has problems: {listed(found)}"

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_log_probs_equal_those_of_transformers(self, start: Start, model: Path, temperature: float) -> None:
        rows = tiny.batch(7)
        found = start().log_probs(rows, temperature=temperature, entropy=True)
        plain, mask = tiny.read_model(model), rows["response_mask"]
        for name, part in (("log_probs", 0), ("entropy", 1)):
            expected = torch.zeros(mask.shape)
            for row in range(len(rows)):
                with torch.no_grad():
                    scores = tiny.plain_scores(plain, rows, row, temperature)[part]
                expected[row, : len(scores)] = scores
            column = found[name].cpu()
            assert column.dtype == torch.float32, f"{name} are {column.dtype}, not float32"
            assert column.shape == mask.shape, f"{name} have the shape {tuple(column.shape)}, responses {mask.shape}"
            outside = float(column[~mask].abs().sum())
            assert outside == 0.0, f"{name} are not 0 outside the responses: they sum to {outside:g}"
            furthest = float((column - expected).abs().max())
            assert furthest <= self.tolerance, (
                f"{name} at temperature {temperature:g} differ from transformers' by {furthest:.2g}; "
                f"{self.tolerance:g} is allowed"
            )

    def test_only_what_was_asked_for_is_scored(self, start: Start) -> None:
        strategy = start()
        found = strategy.log_probs(tiny.batch(2)).columns
        assert found == ["log_probs"], f"log_probs without entropy has the columns {listed(found)}"
        shape = tuple(strategy.log_probs(tiny.batch(3).slice(0, 0))["log_probs"].shape)
        assert shape == (0, 9), f"no rows are scored to the shape {shape}"

    def test_scores_do_not_depend_on_how_rows_are_cut(self, start: Start) -> None:
        rows = tiny.batch(7)
        one, all_at_once = (start(infer_batch_size=size).log_probs(rows)["log_probs"] for size in (1, 7))
        furthest = float((one - all_at_once).abs().max())
        assert furthest <= self.tolerance, f"log-probs of micro-batches of 1 and 7 rows differ by {furthest:.2g}"

    def test_scoring_changes_no_weight(self, start: Start) -> None:
        strategy = start()
        before = _weights(strategy)
        strategy.log_probs(tiny.batch(3))
        _assert_same(_weights(strategy), before, 0.0, "scoring changed")

    def test_a_step_is_that_of_adamw(self, train: Start, model: Path) -> None:
        rows = tiny.batch(6)
        plain = tiny.read_model(model)
        adam = torch.optim.AdamW(plain.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
        strategy = train()
        for step in range(2):
            expected_loss = tiny.plain_loss(plain, rows)
            expected_loss.backward()  # type: ignore[no-untyped-call]
            norm = float(torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP))
            adam.step()
            adam.zero_grad()
            metrics = strategy.train_step(rows, tiny.loss_of(rows))
            missing = {"loss", "grad_norm", "lr", "mean_term"} - metrics.keys()
            assert not missing, f"train_step does not report {listed(sorted(missing))}"
            for name, value in (("loss", float(expected_loss.detach())), ("mean_term", float(expected_loss.detach()))):
                assert metrics[name] == pytest.approx(value, abs=self.tolerance), (
                    f"step {step} reports {name} {metrics[name]:.6g}, torch has {value:.6g}"
                )
            assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-2), (
                f"step {step} reports grad_norm {metrics['grad_norm']:.6g}, before clipping torch has {norm:.6g}"
            )
            assert metrics["lr"] == pytest.approx(RATE), f"step {step} reports lr {metrics['lr']:g}, it is {RATE:g}"
        # Adam divides by the size of each gradient, so where one is nearly 0 rounding decides a part of the step.
        allowed = max(self.tolerance, RATE / 10)
        _assert_same(_weights(strategy), plain.state_dict(), allowed, "two steps of torch's AdamW differ from")

    def test_steps_lower_the_loss(self, train: Start) -> None:
        rows = tiny.batch(6)
        strategy = train()
        losses = [strategy.train_step(rows, tiny.loss_of(rows))["loss"] for _ in range(6)]
        assert all(math.isfinite(loss) for loss in losses), f"losses of six steps on one batch: {losses}"
        assert losses[-1] < losses[0], f"six steps on one batch did not lower its loss: {losses[0]:g} to {losses[-1]:g}"

    def test_a_step_does_not_depend_on_how_rows_are_cut(self, train: Start) -> None:
        rows, found = tiny.batch(7), []
        for size in (1, 3, 7):
            strategy = train(training_args={"per_device_train_batch_size": size})
            metrics = strategy.train_step(rows, tiny.loss_of(rows))
            found.append((metrics["loss"], metrics["grad_norm"], metrics["mean_term"]))
        for size, one in zip((3, 7), found[1:]):
            assert one == pytest.approx(found[0], rel=1e-3, abs=self.tolerance), (
                f"micro-batches of {size} rows and of 1 row give another loss, grad_norm or metric: "
                f"{listed(f'{value:.4g}' for value in one)} and {listed(f'{value:.4g}' for value in found[0])}"
            )

    def test_what_only_scores_takes_no_step(self, start: Start) -> None:
        rows, strategy = tiny.batch(3), start(trains=False)
        with pytest.raises(Exception):  # noqa: B017 - which error is the strategy's choice
            pytest.fail(f"set up without a plan, train_step gave {strategy.train_step(rows, tiny.loss_of(rows))}")

    @pytest.mark.parametrize("which", ["model", "tied"])
    def test_weights_are_those_of_the_folder(self, start: Start, model: Path, tied: Path, which: str) -> None:
        folder = tied if which == "tied" else model
        expected = tiny.read_model(folder).state_dict()
        strategy = start(folder)
        names = [name for bucket in strategy.weights(8000) for name, _ in bucket]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        assert not twice, f"weights() gives {listed(twice)} more than once"
        missing, strange = expected.keys() - set(names), set(names) - expected.keys()
        assert not missing, f"weights() leaves out {listed(sorted(missing))}"
        assert not strange, f"weights() gives {listed(sorted(strange))}, which transformers' model does not have"
        assert [name for bucket in strategy.weights(8000) for name, _ in bucket] == names, "weights() changes its order"
        _assert_same(_weights(strategy), expected, 0.0, "weights() differ from the folder in")

    def test_buckets_keep_to_their_size(self, start: Start) -> None:
        strategy, device = start(), type(self).platform_class.device_type
        buckets = list(strategy.weights(8000))
        assert len(buckets) > 1, "weights(8000) of a model of 60 kB came in one bucket"
        for bucket in buckets:
            size = sum(tensor.nbytes for _, tensor in bucket)
            assert bucket, "weights() gave an empty bucket"
            assert size <= 8000 or len(bucket) == 1, f"a bucket of at most 8000 bytes holds {size}"
            elsewhere = {tensor.device.type for _, tensor in bucket} - {device}
            assert not elsewhere, f"weights() are on {listed(elsewhere)}, not on the device ({device})"

    def test_a_saved_run_goes_on_as_if_it_had_not_stopped(self, train: Start, tmp_path: Path) -> None:
        rows = tiny.batch(6)
        strategy = train()
        strategy.train_step(rows, tiny.loss_of(rows))
        strategy.save(tmp_path)
        going_on = strategy.train_step(rows, tiny.loss_of(rows))
        resumed = train()
        resumed.load(tmp_path)
        assert resumed.train_step(rows, tiny.loss_of(rows)) == going_on, (
            "the step after load() reports other numbers than the step after save()"
        )
        _assert_same(
            _weights(resumed), _weights(strategy), 0.0, "the step after load() gave other weights than save():"
        )

    def test_a_saved_folder_is_a_model_folder(self, start: Start, tmp_path: Path) -> None:
        strategy = start()
        strategy.save(tmp_path)
        try:
            saved = tiny.read_model(tmp_path).state_dict()
        except (OSError, ValueError) as error:
            reason = str(error).partition(", found in directory")[0]
            pytest.fail(f"transformers cannot read the saved folder: {reason}", pytrace=False)
        _assert_same(saved, _weights(strategy), 0.0, "the saved folder differs in")

    def test_a_checkpoint_that_is_not_there_is_an_error(self, start: Start, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError):
            start().load(tmp_path / "nowhere")

    def test_offload_and_reload_change_no_number(self, train: Start) -> None:
        rows = tiny.batch(5)
        moved, still = train(), train()
        for _ in range(2):
            moved.offload()
            moved.reload()
            there, here = (one.train_step(rows, tiny.loss_of(rows)) for one in (moved, still))
            other = [name for name in here if there.get(name) != here[name]]
            assert not other, f"after offload and reload a step reports another {listed(sorted(other))}"

    def test_an_actor_has_no_values(self, start: Start) -> None:
        with pytest.raises(NotImplementedError):
            _values(start(), tiny.batch(2))


def _weights(strategy: TrainStrategy) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for bucket in strategy.weights(1 << 30) for name, tensor in bucket}


def _values(strategy: TrainStrategy, rows: DataProto) -> None:
    strategy.values(rows)


def _assert_same(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: float, what: str
) -> None:
    missing = expected.keys() ^ found.keys()
    assert not missing, f"{what} the names {listed(sorted(missing))}"
    for name, tensor in expected.items():
        here = found[name]
        assert here.shape == tensor.shape, f"{what} {name}: shape {tuple(here.shape)}, expected {tuple(tensor.shape)}"
        furthest = float((here.float() - tensor.detach().cpu().float()).abs().max())
        assert furthest <= tolerance, f"{what} {name}, by {furthest:.2g}; {tolerance:g} is allowed"
