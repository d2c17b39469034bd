"""Settings of the agentic pipeline: episodes of many turns in environments."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from roll_core.config.pipeline import NormType, PPOConfig
from roll_core.config.roles import WorkerConfig
from roll_core.config.section import Section
from roll_core.config.values import NotNegative, Options, Positive


class LlmProxy(Section):
    """Who answers in an environment: the policy, a remote model, or chance."""

    proxy_type: Literal["policy", "openai", "random"] = "policy"
    proxy_config: Options = Field(default_factory=dict)


class RewardNormalization(Section):
    """How rewards of episodes are compared. The norm types win over `method`."""

    grouping: str = "batch"
    """batch, state, inductive, or a column such as traj_group_id or tags."""
    method: Literal["identity", "mean", "mean_std", "asym_clip"] = "identity"
    norm_mean_type: NormType | None = None
    norm_std_type: NormType | None = None


class EnvMonitor(Section):
    """Watches for environments that no longer answer."""

    enable: bool = True
    monitor_interval: Annotated[float, Field(gt=0)] = 30.0
    hung_timeout: Annotated[float, Field(gt=0)] = 3600.0


class CustomEnv(Section):
    """One kind of environment, named by its tag. `env_config` goes to the environment's constructor."""

    without_effect: ClassVar[dict[str, str]] = {
        "user_prompt_format": "what an environment shows is its agent_template's",
        "agent_runner_cls": "environments are stepped by their env_manager_cls",
    }

    env_type: str | None = None
    max_steps: int | None = None
    max_tokens_per_step: Positive | None = None
    env_manager_cls: str | None = None
    use_thread_lock: bool = False
    agent_system_template: str | None = None
    agent_template: str | None = None
    pre_step_template: str | None = None
    next_step_template: str | None = None
    history_length: NotNegative | None = None
    max_env_step_concurrent: NotNegative | None = None
    tool_wrapper: Any = None
    env_config: Options = Field(default_factory=dict)


class EnvManagerConfig(WorkerConfig):
    """How many environments run, in which groups, and who plays in them."""

    without_effect: ClassVar[dict[str, str]] = {
        "format_penalty": "each environment has its own in custom_envs.<tag>.env_config",
    }

    llm_proxy: LlmProxy = Field(default_factory=LlmProxy)
    num_env_groups: Positive = 128
    group_size: Positive = 1
    """Environments of a group start from the same state."""
    group_size_redundancy: NotNegative = 0
    tags: list[str] = Field(default_factory=list)
    num_groups_partition: list[NotNegative] | None = None
    """Groups per tag, adding up to `num_env_groups`."""
    max_traj_per_env: int = -1
    max_env_num_per_worker: NotNegative = 0
    """0 puts all environments into one worker."""
    group_filter_cls: str | None = None


_VARIABLES = (
    "action_pattern",
    "agent_config_common",
    "agent_system_template",
    "agent_template",
    "all_response_pattern",
    "default_history_length",
    "env_manager_cls",
    "frozen_format_penalty",
    "max_actions_per_traj",
    "max_tokens_per_step",
    "sokoban_format_penalty",
    "think_action_pattern",
    "user_prompt_no_think_format",
    "user_prompt_think_format",
)
"""Names that published configs and the files they include give to values of their environments."""


def _named_env(given: Any) -> Any:
    return {} if given is None else given


class AgenticConfig(PPOConfig):
    """Reinforcement learning from episodes."""

    without_effect: ClassVar[dict[str, str]] = {
        "dirty_data_mask": "rows of episodes that failed are dropped",
        "open_feedback_turn": "there is no such turn",
        "use_token_reward": "rewards stand on the last token of a turn",
        "custom_env": "environments are named under custom_envs",
        "enable_response_mask": "only response tokens are trained",
        "use_turn_scores": "adv_estimator says how turns are credited",
        **dict.fromkeys(_VARIABLES, "a variable that nothing refers to; environments are described in custom_envs"),
        "action_sep": "each environment has its own action_pattern",
    }

    custom_envs: Annotated[dict[str, CustomEnv], BeforeValidator(_named_env)] = Field(default_factory=dict)
    train_env_manager: EnvManagerConfig = Field(default_factory=EnvManagerConfig)
    val_env_manager: EnvManagerConfig | None = None
    render_save_dir: str | None = None
    reward: WorkerConfig | None = None
    reward_normalization: RewardNormalization = Field(default_factory=RewardNormalization)
    env_monitor: EnvMonitor = Field(default_factory=EnvMonitor)
    batch_adjust_mode: Literal["copy", "delete", "auto", "random_sample"] = "copy"
    episode_reward_weight: float = 1.0
    step_reward_weight: float = 1.0
    step_reward_gamma: Annotated[float, Field(ge=0, le=1)] = 0.95
    ratio_type: Literal["token", "segment"] = "token"
    exp_mode: str = "train"
    partial_gpu_mode: bool = True
    parse_tool_call_parameter_to_dict: bool = False
    skip_mock_system_prompt: bool = False

    @model_validator(mode="after")
    def _name_managers(self) -> Self:
        for name in ("train_env_manager", "val_env_manager"):
            self._complete(name, name=name)
        return self
