"""Settings of the agentic pipeline: episodes of many turns in environments."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from roll_core.config.policy import NormType, PPOConfig
from roll_core.config.role_sections import GeneratingArgs
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
    """Who is compared with whom: batch, tags, traj_group_id, or state (steps, not episodes)."""
    method: Literal["identity", "mean", "mean_std", "asym_clip"] = "identity"
    norm_mean_type: NormType | None = None
    norm_std_type: NormType | None = None


class EnvMonitor(Section):
    """Watches for environments that no longer answer."""

    without_effect: ClassVar[dict[str, str]] = {
        "enable": "environments that do not answer would stop a run, so they are always watched",
        "monitor_interval": "an environment that exceeds hung_timeout is noticed at once",
    }

    hung_timeout: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that one reset or step may take before the environment is killed and its episode played anew."""


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
    agent_system_template: str | None = None
    agent_template: str | None = None
    pre_step_template: str | None = None
    next_step_template: str | None = None
    history_length: NotNegative | None = None
    max_env_step_concurrent: NotNegative | None = None
    """How many may be reset or stepped at once, in all processes; 0 and none set no bound."""
    use_thread_lock: bool = False
    """Those of one process take turns, as if they were not made for threads."""
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
    """Further members of each group, which stand in for those with faults, and at a free pace for slow ones."""
    pace: Literal["lockstep", "free"] | None = None
    """lockstep: all environments take a turn together, and the same seed gives the same episodes, bit for bit. free:
    each goes on as soon as its own answer is there; what runs beside what then depends on time, and so do the last
    bits of log-probabilities. Where nothing is said, training is free with async_generation_ratio above 0, and all
    else in lockstep."""
    tags: list[str] = Field(default_factory=list)
    num_groups_partition: list[NotNegative] | None = None
    """Groups per tag, adding up to `num_env_groups`."""
    max_traj_per_env: int = -1
    max_env_num_per_worker: NotNegative = 0
    """Environments that share a process; 0 makes a process per core, at most 8."""
    group_filter_cls: str | None = None
    """Made with (config, manager, mode); its filter(group, episode, episodes) says whether a group is dropped."""

    @property
    def num_members(self) -> int:
        """Episodes that are begun for each group."""
        return self.group_size + self.group_size_redundancy

    @property
    def own_group_filter(self) -> str | None:
        """The filter, but for the one of published configs that keeps every group."""
        given = self.group_filter_cls
        return None if given is None or given.startswith("roll.pipeline.agentic.") else given


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
        "enable_think": "templates say what an answer looks like",
        "max_actions_per_turn": "each environment has its own action_pattern",
        "special_token_list": "each environment has its own action_pattern",
        "action_sep": "each environment has its own action_pattern",
        "render_save_dir": "episodes are text, and rollout_dump_dir names the folder of their files",
        "batch_adjust_mode": "a step's last mini-batch may be smaller, so no row is added or dropped",
        "partial_gpu_mode": "roles that share a device take turns on it",
        "skip_mock_system_prompt": "what a template says before the first turn is said once",
    }

    custom_envs: Annotated[dict[str, CustomEnv], BeforeValidator(_named_env)] = Field(default_factory=dict)
    train_env_manager: EnvManagerConfig = Field(default_factory=EnvManagerConfig)
    val_env_manager: EnvManagerConfig | None = None
    reward: WorkerConfig | None = None
    reward_normalization: RewardNormalization = Field(default_factory=RewardNormalization)
    env_monitor: EnvMonitor = Field(default_factory=EnvMonitor)
    episode_reward_weight: float = 1.0
    step_reward_weight: float = 1.0
    step_reward_gamma: Annotated[float, Field(ge=0, le=1)] = 0.95
    ratio_type: Literal["token", "segment"] = "token"
    exp_mode: str = "train"
    parse_tool_call_parameter_to_dict: bool = False

    @property
    def ratio_level(self) -> Literal["token", "seq", "segment"]:
        """Over what importance ratios are averaged: a token or a turn."""
        return self.ratio_type

    @property
    def row_length(self) -> int:
        """Tokens of the longest row: `sequence_length`, or what prompt and response may have together."""
        return self.sequence_length or self.prompt_length + (self.response_length or 0)

    @property
    def num_train_groups(self) -> int:
        """Groups of episodes of one step."""
        return max(1, self.rollout_batch_size // self.train_env_manager.group_size)

    @property
    def is_free(self) -> bool:
        """Whether environments of the training go on without waiting for each other."""
        return self.async_generation_ratio > 0 or self.train_env_manager.pace == "free"

    @property
    def has_free_pace(self) -> bool:
        """Whether environments of any purpose do."""
        return self.is_free or (self.val_env_manager is not None and self.val_env_manager.pace == "free")

    @property
    def num_redundant_groups(self) -> int:
        """Groups beyond those of a step that a free pace plays too, and leaves behind where they are slow."""
        return max(0, self.train_env_manager.num_env_groups - self.num_train_groups)

    @property
    def used_tags(self) -> list[str]:
        """Tags of all environments that are played in."""
        held_out = [] if self.val_env_manager is None or self.is_rollout_only else [self.val_env_manager]
        managers = [self.train_env_manager, *held_out]
        return list(dict.fromkeys(tag for manager in managers for tag in manager.tags))

    @model_validator(mode="after")
    def _name_managers(self) -> Self:
        for name in ("train_env_manager", "val_env_manager"):
            self._complete(name, name=name)
        sampling = self.actor_infer.generating_args or GeneratingArgs()
        if sampling.max_new_tokens is None:
            longest = max((env.max_tokens_per_step or 0 for env in self.custom_envs.values()), default=0)
            sampling = sampling.model_copy(update={"max_new_tokens": longest or self.row_length})
        self._complete("actor_infer", generating_args=sampling)
        return self
