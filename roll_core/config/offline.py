"""Settings of pipelines that learn from files alone: DPO, SFT and distillation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from roll_core.config.pipeline import BaseConfig
from roll_core.config.roles import WorkerConfig
from roll_core.config.values import Fraction, NotNegative, Positive


class OfflineConfig(BaseConfig):
    """Keys that the pipelines of this file share."""

    without_effect: ClassVar[dict[str, str]] = {"track_name": "the tracker is chosen by track_with"}

    pretrain: str | None = None
    """Default model folder of every role; each may name its own."""
    global_template: str | None = None
    validation: WorkerConfig | None = None
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    num_train_epochs: float | None = None

    def _fill_model(self, path: str, folder: str | None) -> None:
        role = getattr(self, path)
        if not isinstance(role, WorkerConfig):
            return
        changes: dict[str, Any] = {"name": role.name or path}
        if role.model_args.model_name_or_path is None and folder is not None:
            changes["model_args"] = role.model_args.model_copy(update={"model_name_or_path": folder})
        if role.training_args.seed is None:
            changes["training_args"] = role.training_args.model_copy(update={"seed": self.seed})
        self._complete(path, **changes)


class DPOConfig(OfflineConfig):
    """Learning from pairs of a chosen and a rejected answer."""

    actor_train: WorkerConfig = Field(default_factory=WorkerConfig)
    reference: WorkerConfig | None = None
    train_batch_size: Positive | None = None
    ipo: bool = False
    beta: Annotated[float, Field(gt=0)] = 0.1
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    chosen_key: str = "chosen"
    rejected_key: str = "rejected"

    @model_validator(mode="after")
    def _models(self) -> Self:
        for path in ("actor_train", "reference"):
            self._fill_model(path, self.pretrain)
        return self


class SFTConfig(OfflineConfig):
    """Learning from demonstrations."""

    sft_train: WorkerConfig = Field(default_factory=WorkerConfig)
    system_key: str | None = None
    prompt_key: str | None = "instruction"
    query_key: str | None = None
    response_key: str | None = "output"

    @model_validator(mode="after")
    def _models(self) -> Self:
        self._fill_model("sft_train", self.pretrain)
        return self


class DistillConfig(OfflineConfig):
    """Learning a teacher's distributions over the tokens of demonstrations."""

    student: WorkerConfig = Field(default_factory=WorkerConfig)
    teacher: WorkerConfig = Field(default_factory=WorkerConfig)
    student_pretrain: str | None = None
    teacher_pretrain: str | None = None
    question_key: str | None = None
    answer_key: str | None = None
    system_key: str | None = None
    distill_on_prompt: bool = False
    logits_topk: NotNegative = 64
    """Most probable tokens whose logits are sent; 0 sends all."""
    distill_loss_weight: Fraction = 0.5
    kd_temperature: Annotated[float, Field(gt=0)] = 1.0
    teacher_temperature: Annotated[float, Field(gt=0)] = 1.0
    kd_objective: Literal[
        "forward_kl", "reverse_kl", "adaptive_kl", "skewed_forward_kl", "skewed_reverse_kl", "js_divergence"
    ] = "forward_kl"
    adaptive_kl_alpha: Fraction = 0.5
    skew_lambda: Fraction = 0.1
    logits_transfer_backend: str = "ray"

    @model_validator(mode="after")
    def _models(self) -> Self:
        self._fill_model("student", self.student_pretrain or self.pretrain)
        self._fill_model("teacher", self.teacher_pretrain or self.pretrain)
        return self
