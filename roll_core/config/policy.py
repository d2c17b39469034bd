"""Settings of pipelines that learn a policy from rewards."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from roll_core.config.pipeline import BaseConfig
from roll_core.config.roles import WorkerConfig
from roll_core.config.section import Section
from roll_core.config.values import Folder, Fraction, NotNegative, Positive
from roll_core.objects import our_name


class ImportanceWeight(Section):
    """Weights that make up for an engine's log-probabilities differing from the trainer's."""

    enabled: bool = False
    weight_type: Literal["token", "geometric", "sequence", "segment"] = "token"
    upper_bound: float | None = 1.2
    detach: bool = True


class MismatchFilter(Section):
    """Leaves out what an engine sampled too differently from the trainer's view."""

    enabled: bool = False
    agg_type: Literal["token", "geometric", "sequence", "segment"] = "token"
    ratio_enabled: bool = False
    ratio_low: float = 0.8
    ratio_high: float = 1.2
    diff_enabled: bool = False
    diff_low: float = -0.2
    diff_high: float = 0.2


class TrainInferCorrection(Section):
    """What is done about the mismatch between trainer and engine."""

    is_weight: ImportanceWeight = Field(default_factory=ImportanceWeight)
    filters: list[MismatchFilter] = Field(default_factory=list)


NormType = Literal["batch", "group", "running"]
Estimator = Literal[
    "gae",
    "reinforce",
    "reinforce_plus_plus",
    "grpo",
    "rloo",
    "dr_grpo",
    "raft_plus_plus",
    "gigpo",
    "step_reinforce",
    "agentic_reinforce",
]
Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
Penalty = Literal["kl", "abs", "mse", "full", "k1", "k2", "k3"]


TELLS_OF_TRAINING = ("actor_train", "critic", "reference", "teacher", "adv_estimator", "ppo_epochs", "use_kl_loss")
"""Keys that nobody writes who wants to generate and score only."""


class PPOConfig(BaseConfig):
    """Keys of pipelines that learn a policy from rewards.

    A reference model is made only when `use_kl_loss`, `add_token_level_kl` or `enable_reference` is true.
    `init_kl_coef` alone makes none, and a notice says so.
    """

    without_effect: ClassVar[dict[str, str]] = {
        "use_reward_scaling": "rewards are scaled by norm_mean_type and norm_std_type",
        "use_reward_norm": "rewards are scaled by norm_mean_type and norm_std_type",
        "reward_norm": "rewards are scaled by norm_mean_type and norm_std_type",
        "reward_shift": "rewards are scaled by norm_mean_type and norm_std_type",
        "reward_scale": "rewards are scaled by norm_mean_type and norm_std_type",
        "add_len_reward": "no reward for length is added",
        "l2": "there is no such penalty",
        "pg_variant": "the loss is chosen by actor_train.pg_variant",
        **dict.fromkeys(("lora_rank", "lora_alpha", "lora_target", "lora_dropout"), "adapters are model_args' matter"),
    }

    pretrain: Folder | None = None
    """Default model folder of actor_train, actor_infer and reference; each may name its own."""
    reward_pretrain: Folder | None = None
    """Default model folder of critic."""
    actor_train: WorkerConfig = Field(default_factory=WorkerConfig)
    actor_infer: WorkerConfig = Field(default_factory=WorkerConfig)
    critic: WorkerConfig | None = None
    reference: WorkerConfig | None = None
    async_generation_ratio: Annotated[float, Field(ge=0)] = 0.0
    ppo_epochs: Positive = 1
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    lambd: Fraction = 0.95
    gamma: Fraction = 1.0
    pg_clip: Annotated[float, Field(ge=0)] = 0.2
    use_pg_clip_range: bool = False
    pg_clip_low: Annotated[float, Field(ge=0)] = 0.2
    pg_clip_high: Annotated[float, Field(ge=0)] = 0.2
    value_clip: Annotated[float, Field(ge=0)] | None = None
    kl_penalty: Penalty = "kl"
    target_kl: Annotated[float, Field(gt=0)] | None = None
    init_kl_coef: Annotated[float, Field(ge=0)] = 0.2
    kl_horizon: Positive = 10000
    reward_clip: Annotated[float, Field(gt=0)] | None = None
    whiten_rewards: bool = False
    whiten_advantages: bool = False
    advantage_clip: Annotated[float, Field(gt=0)] | None = None
    adv_estimator: Estimator = "gae"
    norm_mean_type: NormType | None = None
    norm_std_type: NormType | None = None
    add_token_level_kl: bool = False
    critic_warmup: NotNegative = 0
    use_kl_loss: bool = False
    kl_loss_coef: float = 0.0
    entropy_loss_coef: float = 0.0
    loss_agg_mode: Aggregation = "seq-mean-token-mean"
    rl_loss_coef: Annotated[float, Field(ge=0)] = 1.0
    dual_clip_loss: bool = False
    enable_reference: bool = False
    enable_old_logprobs_recompute: bool | None = None
    """By default on where a rollout is used for more than one optimiser step."""
    force_disable_old_logprobs_recompute: bool = False
    train_infer_correction: TrainInferCorrection | None = None
    use_opd: bool = False
    is_pure_opd: bool = False
    pure_opd_pipeline_type: Literal["rlvr", "agentic"] | None = None
    student_train: WorkerConfig | None = None
    student_infer: WorkerConfig | None = None
    opsd_mode: bool = False
    opsd_solution_key: str | None = None
    opsd_max_solution_length: Positive | None = None
    teacher: dict[str, WorkerConfig] | None = None
    """Models that the policy is drawn to, by name; a single one may stand without a name."""

    @property
    def is_rollout_only(self) -> bool:
        """Whether a run only generates and scores: no key tells of training, or `pipeline_cls` says so."""
        if self.pipeline_cls is not None and our_name(self.pipeline_cls) == "rollout":
            return True
        return "actor_infer" in self.model_fields_set and self.model_fields_set.isdisjoint(TELLS_OF_TRAINING)

    @property
    def needs_critic(self) -> bool:
        """Whether values are learnt; a student's advantages are its distance from the teacher."""
        return self.adv_estimator == "gae" and self.student_train is None

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model is made."""
        return self.use_kl_loss or self.add_token_level_kl or self.enable_reference

    @property
    def recomputes_old_log_probs(self) -> bool:
        """Whether the trainer scores a rollout before training on it."""
        if self.force_disable_old_logprobs_recompute:
            return False
        if self.enable_old_logprobs_recompute is not None:
            return self.enable_old_logprobs_recompute
        return self.add_token_level_kl or self.adv_estimator == "gae" or self.optimizer_steps_per_step > 1

    @property
    def model_update_frequency(self) -> int:
        """Engines get new weights every so many steps; published configs say it of the actor that trains."""
        return max(self.actor_train.model_update_frequency, self.actor_infer.model_update_frequency)

    def is_save_due(self, step: int) -> bool:
        """Whether a checkpoint is written after `step` steps: every `save_steps`, and after the last one."""
        return step == self.max_steps or (self.save_steps > 0 and step % self.save_steps == 0)

    @property
    def ratio_level(self) -> Literal["token", "seq", "segment"]:
        """Over what importance ratios are averaged: a token, a whole response, or a turn of an episode."""
        return "token"

    @property
    def samples_per_step(self) -> int:
        """Rows that one step trains on, as far as the config can tell."""
        return self.rollout_batch_size

    @property
    def optimizer_steps_per_step(self) -> int:
        """Optimiser steps of the actor in one step of the pipeline; 0 where the batch does not divide."""
        return self.ppo_epochs * self.samples_per_step // self.actor_train.mini_batch_size

    @model_validator(mode="before")
    @classmethod
    def _students_are_actors(cls, given: Any) -> Any:
        # Where a teacher is all the reward, published configs call the actors students.
        if not isinstance(given, dict):
            return given
        pairs = {"actor_train": given.get("student_train"), "actor_infer": given.get("student_infer")}
        return {name: student for name, student in pairs.items() if student is not None} | given

    @model_validator(mode="after")
    def _complete_roles(self) -> Self:
        for name in ("actor_train", "actor_infer", "critic", "reference", "student_train", "student_infer"):
            role = getattr(self, name)
            if isinstance(role, WorkerConfig):
                folder = self.reward_pretrain if name == "critic" else self.pretrain
                model = role.model_args
                if model.model_name_or_path is None and folder is not None:
                    model = model.model_copy(update={"model_name_or_path": folder})
                training = role.training_args
                if training.seed is None:
                    training = training.model_copy(update={"seed": self.seed})
                self._complete(name, name=role.name or name, model_args=model, training_args=training)
        return self
