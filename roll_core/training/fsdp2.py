"""Training and scoring with torch's fully sharded data parallelism, on any platform and any number of ranks.

Importing this module loads nothing heavy: a config can be checked, `Config` and `problems` included, without torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from roll_core.errors import Problem
from roll_core.training.base import TokenLoss, TrainPlan, TrainStrategy
from roll_core.training.fsdp2_config import Fsdp2Config, config_problems
from roll_core.training.model_args import is_critic

if TYPE_CHECKING:
    import torch

    from roll_core.config.schema import WorkerConfig
    from roll_core.data import DataProto
    from roll_core.platforms import Platform
    from roll_core.training.optim import Optimizer
    from roll_core.training.sharded_model import ShardedModel


class Fsdp2Strategy(TrainStrategy):
    """FSDP2. `fsdp2_train` and `fsdp2_infer` are both this class; a `TrainPlan` makes the difference.

    With one rank and nothing else asked for, the plain model runs.
    """

    Config: ClassVar[type[BaseModel]] = Fsdp2Config

    model: ShardedModel
    optimizer: Optimizer | None = None
    _owns_group = False

    @classmethod
    def problems(cls, role: WorkerConfig, platform: Platform) -> list[Problem]:
        """What in this role's config can't work here."""
        return config_problems(role, platform)

    def setup(self, plan: TrainPlan | None) -> None:
        """Join the process group and load the model; with a plan, make an optimiser too."""
        from roll_core.training.optim import Optimizer
        from roll_core.training.process_group import join
        from roll_core.training.sharded_model import ShardedModel

        self._config = Fsdp2Config.model_validate(self.role.strategy_config)
        self._owns_group = join(self.platform, self.context)
        self.model = ShardedModel(self.role, self.platform, self.context, self._config, is_training=plan is not None)
        self.optimizer = None if plan is None else Optimizer(self.model.module, self.role, plan)

    def train_step(self, batch: DataProto, loss: TokenLoss) -> dict[str, float]:
        """One optimiser step on this rank's rows of a mini-batch; a rank's share may be empty.

        Log-probabilities are under logits / `batch.meta_info["temperature"]` (default 1). Returns the loss's
        metrics over all ranks, `loss`, `grad_norm` before clipping, the `lr` used, and `skipped_steps`: 1 where
        the gradients were not finite and neither weights nor schedule moved, else 0.
        """
        from roll_core.training.microbatch import cut_for_training
        from roll_core.training.process_group import add_up
        from roll_core.training.stepping import add_gradients

        optimizer = self._trained()
        if loss.needs_values != is_critic(self.role):
            gives, needs = ("values", "tokens") if is_critic(self.role) else ("tokens", "values")
            raise ValueError(
                f"role '{self.context.role}' gives {gives}, and {type(loss).__name__} is a loss of {needs}"
            )
        tallies = add_gradients(self.model, batch, loss, cut_for_training(self.role))
        report = optimizer.step()
        metrics = {name: tally.value for name, tally in add_up(tallies).items()}
        return metrics | {
            "grad_norm": report.grad_norm,
            "lr": report.lr,
            "skipped_steps": float(report.is_skipped),
        }

    def log_probs(self, batch: DataProto, *, temperature: float = 1.0, entropy: bool = False) -> DataProto:
        """Columns `log_probs` and, if asked, `entropy`: float32 [B, R], 0 outside the responses."""
        from roll_core.training.forward import token_scores
        from roll_core.training.microbatch import ModelInput, cut_for_scoring
        from roll_core.training.stepping import score

        def run(given: ModelInput) -> list[torch.Tensor]:
            scores = token_scores(
                self.model.module,
                given,
                temperature=temperature,
                entropy=entropy,
                shares_prompts=self.model.shares_prompts,
            )
            return [scores.log_probs] if scores.entropy is None else [scores.log_probs, scores.entropy]

        names = ["log_probs", "entropy"] if entropy else ["log_probs"]
        return score(self.model, batch, cut_for_scoring(self.role), names, run)

    def values(self, batch: DataProto) -> DataProto:
        """Column `values`: the value of the state before each response token, float32 [B, R], 0 elsewhere."""
        from roll_core.training.forward import token_values
        from roll_core.training.microbatch import cut_for_scoring
        from roll_core.training.stepping import score

        if not is_critic(self.role):
            raise NotImplementedError(f"role '{self.context.role}' is no critic: its model has no value head")
        run = lambda given: [token_values(self.model.module, given)]  # noqa: E731
        return score(self.model, batch, cut_for_scoring(self.role), ["values"], run)

    def weights(self, bucket_bytes: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """All weights in buckets, in the precision the model computes in."""
        return self.model.weights(bucket_bytes)

    def offload(self) -> None:
        """Move weights, gradients and optimiser state to host memory."""
        import torch

        self._move(torch.device("cpu"))
        self.platform.empty_cache()

    def reload(self) -> None:
        """Undo `offload`."""
        self._move(self.model.device)

    def save(self, path: Path) -> None:
        """Write <path>/dcp to go on from (unless `save_only_model`) and the model folder under <path>."""
        from roll_core.training import model_folder, saved_state

        path.mkdir(parents=True, exist_ok=True)
        if not self._config.save_only_model:
            saved_state.save(path, self.model, self.optimizer, self.platform)
        model_folder.write(path, self.model, Path(self.role.model_args.model_name_or_path or ""))

    def load(self, path: Path) -> None:
        """Restore weights, optimiser, schedule and random state."""
        from roll_core.training import saved_state

        saved_state.load(path, self.model, self.optimizer, self.platform)

    def close(self) -> None:
        """Leave the process group, where this strategy made it."""
        import torch.distributed as dist

        if self._owns_group and dist.is_initialized():
            dist.destroy_process_group()
        self._owns_group = False

    def _trained(self) -> Optimizer:
        if self.optimizer is None:
            raise RuntimeError(f"role '{self.context.role}' was set up without a plan: it scores and cannot be trained")
        return self.optimizer

    def _move(self, device: torch.device) -> None:
        self.model.move(device)
        if self.optimizer is not None and not self._config.offload_policy:
            self.optimizer.move(device)
