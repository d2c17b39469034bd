"""Trainers that do one thing wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roll_demo.trainer import DemoTrainer

from roll_core.data import DataProto
from roll_core.testing.train_contract import TrainContract
from tests.testing.planted_registry import planted


@planted("log-probs off by a constant", TrainContract, "test_log_probs_equal_those_of_transformers")
class OffByAConstant(DemoTrainer):
    def log_probs(self, batch: DataProto, **options: Any) -> DataProto:
        found = super().log_probs(batch, **options)
        return found.with_columns(log_probs=found["log_probs"] - 0.25 * batch["response_mask"])


@planted("the temperature forgotten", TrainContract, "test_log_probs_equal_those_of_transformers")
class IgnoresTemperature(DemoTrainer):
    def log_probs(self, batch: DataProto, *, temperature: float = 1.0, entropy: bool = False) -> DataProto:
        return super().log_probs(batch, entropy=entropy)


@planted("log-probs of the padding", TrainContract, "test_log_probs_equal_those_of_transformers")
class ScoresPadding(DemoTrainer):
    def log_probs(self, batch: DataProto, **options: Any) -> DataProto:
        found = super().log_probs(batch, **options)
        return found.with_columns(log_probs=found["log_probs"] - 1.0 * ~batch["response_mask"])


@planted("log-probs in half precision", TrainContract, "test_log_probs_equal_those_of_transformers")
class HalfPrecision(DemoTrainer):
    def log_probs(self, batch: DataProto, **options: Any) -> DataProto:
        found = super().log_probs(batch, **options)
        return found.with_columns(log_probs=found["log_probs"].bfloat16())


@planted("scores that depend on the micro-batch", TrainContract, "test_scores_do_not_depend_on_how_rows_are_cut")
class DependsOnTheCut(DemoTrainer):
    def log_probs(self, batch: DataProto, **options: Any) -> DataProto:
        found = super().log_probs(batch, **options)
        return found.with_columns(log_probs=found["log_probs"] * (1 + self.role.infer_batch_size))


@planted("a step that is not taken", TrainContract, "test_a_step_is_that_of_adamw")
class NeverSteps(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        self.optimizer.adam.param_groups[0]["lr"] = 0.0
        return super().train_step(batch, loss)


@planted("the norm after clipping reported", TrainContract, "test_a_step_is_that_of_adamw")
class ClippedNorm(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        found = super().train_step(batch, loss)
        return found | {"grad_norm": min(found["grad_norm"], 0.5)}


@planted("a metric that is left out", TrainContract, "test_a_step_is_that_of_adamw")
class NoRate(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        found = super().train_step(batch, loss)
        del found["lr"]
        return found


@planted("rows beyond the first micro-batch dropped", TrainContract, "test_a_step_does_not_depend_on_how_rows_are_cut")
class DropsRows(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        return super().train_step(batch.slice(0, self.role.training_args.per_device_train_batch_size), loss)


@planted("steps up the hill", TrainContract, "test_steps_lower_the_loss")
class Climbs(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        self.optimizer.adam.param_groups[0]["maximize"] = True
        return super().train_step(batch, loss)


class ChangesWeights(DemoTrainer):
    """Gives its tensors one by one through `change`."""

    def weights(self, bucket_bytes: int) -> Iterator[list[Any]]:
        items = [item for bucket in super().weights(1 << 30) for item in bucket]
        yield from ([item] for item in self.change(items))

    def change(self, items: list[Any]) -> list[Any]:
        raise NotImplementedError


@planted("weights without one tensor", TrainContract, "test_weights_are_those_of_the_folder")
class LeavesOutATensor(ChangesWeights):
    def change(self, items: list[Any]) -> list[Any]:
        return items[:5] + items[6:]


@planted("weights with one tensor twice", TrainContract, "test_weights_are_those_of_the_folder")
class SendsTwice(ChangesWeights):
    def change(self, items: list[Any]) -> list[Any]:
        return [*items, items[0]]


@planted("weights under the wrapper's names", TrainContract, "test_weights_are_those_of_the_folder")
class WrappersNames(ChangesWeights):
    def change(self, items: list[Any]) -> list[Any]:
        return [(f"module.{name}", tensor) for name, tensor in items]


@planted("a weight transposed", TrainContract, "test_weights_are_those_of_the_folder")
class Transposes(ChangesWeights):
    def change(self, items: list[Any]) -> list[Any]:
        return [(name, tensor.T if name.endswith("down_proj.weight") else tensor) for name, tensor in items]


@planted("all weights in one bucket", TrainContract, "test_buckets_keep_to_their_size")
class OneBucket(DemoTrainer):
    def weights(self, bucket_bytes: int) -> Iterator[list[Any]]:
        return super().weights(1 << 30)


@planted("optimiser state that is not restored", TrainContract, "test_a_saved_run_goes_on_as_if_it_had_not_stopped")
class ForgetsMoments(DemoTrainer):
    def load(self, path: Path) -> None:
        super().load(path)
        for state in self.optimizer.adam.state.values():
            state["exp_avg"].zero_()


@planted("a checkpoint without a model folder", TrainContract, "test_a_saved_folder_is_a_model_folder")
class NoModelFolder(DemoTrainer):
    def save(self, path: Path) -> None:
        super().save(path)
        for file in path.glob("*.safetensors"):
            file.unlink()


@planted("weights changed by offloading", TrainContract, "test_offload_and_reload_change_no_number")
class OffloadsInHalf(DemoTrainer):
    def offload(self) -> None:
        super().offload()
        for parameter in self.model.module.parameters():
            parameter.data = parameter.data.bfloat16().float()


@planted("training without a plan", TrainContract, "test_what_only_scores_takes_no_step")
class TrainsAnyway(DemoTrainer):
    def train_step(self, batch: DataProto, loss: Any) -> dict[str, float]:
        return {"loss": 0.0} if self.optimizer is None else super().train_step(batch, loss)
