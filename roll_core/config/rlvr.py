"""Settings of the RLVR pipeline."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from roll_core.config.policy import PPOConfig
from roll_core.config.role_sections import DataArgs, GeneratingArgs
from roll_core.config.roles import RewardConfig, WorkerConfig
from roll_core.config.values import NotNegative, Positive


class RLVRConfig(PPOConfig):
    """Reinforcement learning with rewards that can be checked."""

    without_effect: ClassVar[dict[str, str]] = {
        "dataset_filter": "rows are chosen by their tags",
        "val_greedy": "validation samples as validation.generating_args says",
        "val_n_sample": "validation samples as validation.generating_args says",
        "mask_type": "every response token is trained",
        "balance_length": "rows are always dealt to ranks by length",
        "minibatch_data_iter_num": "ppo_epochs counts the passes over a rollout",
        "postive_loss_coef": "there is no such weight",
        "positive_loss_coef": "there is no such weight",
        "use_topr_neg_loss_coef": "pg_variant: topr has weights of its own",
        "use_policy_loss_type": "the loss is chosen by pg_variant",
        "use_topr_loss": "the loss is chosen by pg_variant",
    }

    num_return_sequences_in_group: Positive = 1
    """Responses per prompt."""
    global_template: str | None = None
    tag_to_template: dict[str, str] = Field(default_factory=dict)
    validation: WorkerConfig | None = None
    rewards: dict[str, RewardConfig] = Field(default_factory=dict)
    reward_model: WorkerConfig | None = None
    save_logging_board_dir: str | None = None
    max_len_mask: bool = False
    difficulty_mask: bool = False
    difficulty_low_threshold: float = 0.0
    difficulty_high_threshold: float = 1.0
    error_max_len_clip: bool = False
    error_max_len_threshold: NotNegative = 9_999_999_999
    difficulty_loss_weight: bool = False
    length_loss_weight: bool = False
    importance_sampling: Literal["token", "seq"] = "token"
    overlong_buffer_length: NotNegative = 0
    """So many tokens before the longest response, rewards begin to fall; 0 leaves them as they are."""
    overlong_penalty_factor: Annotated[float, Field(ge=0)] = 1.0
    """By how much a reward has fallen at the longest response."""

    @property
    def ratio_level(self) -> Literal["token", "seq", "segment"]:
        """Over what importance ratios are averaged: a token or a whole response."""
        return self.importance_sampling

    @property
    def samples_per_step(self) -> int:
        """Responses that one step trains on."""
        return self.rollout_batch_size * self.num_return_sequences_in_group

    @model_validator(mode="after")
    def _complete_sampling(self) -> Self:
        sampling = self.actor_infer.generating_args or GeneratingArgs()
        filled: dict[str, int] = {}
        if sampling.max_new_tokens is None:
            filled["max_new_tokens"] = self.response_window
        if sampling.num_return_sequences is None:
            filled["num_return_sequences"] = self.num_return_sequences_in_group
        self._complete("actor_infer", generating_args=sampling.model_copy(update=filled))
        if self.validation is not None:
            self._complete_validation(self.validation)
        for name, reward in self.rewards.items():
            if reward.name is None:
                self.rewards[name] = reward.model_copy(update={"name": f"reward-{name}"})
        return self

    def _complete_validation(self, validation: WorkerConfig) -> None:
        default = self.actor_infer.generating_args if self.is_rollout_only else None
        sampling = validation.generating_args or default or GeneratingArgs()
        filled: dict[str, int] = {}
        if sampling.max_new_tokens is None:
            filled["max_new_tokens"] = self.val_response_window
        if sampling.num_return_sequences is None:
            filled["num_return_sequences"] = 1
        sampling = sampling.model_copy(update=filled)
        data = _with_images_of(self.actor_train.data_args, validation.data_args)
        self._complete("validation", name="validation", generating_args=sampling, data_args=data)


def _with_images_of(training: DataArgs | None, data: DataArgs | None) -> DataArgs | None:
    """Held-out rows have images where training rows have them, unless their section says otherwise."""
    if training is None or data is None:
        return data
    keys = ("image", "image_max_pixels", "image_min_pixels")
    filled = {key: getattr(training, key) for key in keys if getattr(data, key) is None and getattr(training, key)}
    return data.model_copy(update=filled) if filled else data
