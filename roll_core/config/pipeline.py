"""Settings that every pipeline has, and those of pipelines that learn a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from roll_core.config.roles import WorkerConfig
from roll_core.config.section import Section
from roll_core.config.values import Environment, Folder, Fraction, NotNegative, Options, Positive, RunName
from roll_core.objects import our_name
from roll_core.platforms.base import Platform
from roll_core.trackers.redact import is_secret_key


def _hide_secrets(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {key: _hidden(key, value) for key, value in given.items()}


def _hidden(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _hide_secrets(value)
    return SecretStr(value) if isinstance(value, str) and is_secret_key(str(key)) else value


def _mapping(given: Any) -> Any:
    return {} if given is None else given


class CheckpointConfig(Section):
    """Where checkpoints go."""

    type: str = "file_system"
    output_dir: Folder | None = None
    async_upload: bool = False
    keep_local_file: bool = False


class TransferBackend(Section):
    """How batches move between workers; `backend_name` None is the default transport."""

    backend_name: str | None = None
    backend_config: Options = Field(default_factory=dict)


class RouterArguments(Section):
    """How requests are spread over engines."""

    router_name: str | None = None
    router_config: Options = Field(default_factory=dict)
    max_running_requests: Positive = 128


class RolloutMock(Section):
    """Write each step's rollouts to files, or read them back instead of generating."""

    enable: bool = False
    mode: Literal["dump", "mock"] = "dump"
    dump_dir: str = "./rollout_mock_dumps"


class BaseConfig(Section):
    """Keys that every pipeline has. `notices` are sentences about keys that were accepted and do nothing."""

    without_effect: ClassVar[dict[str, str]] = {
        "hydra": "a run writes nothing but its own outputs",
        "base_dir": "outputs go to output_dir",
        "local_rank": "workers get their ranks from the cluster",
        "report_length_and_rewards": "lengths and rewards are among the metrics",
        "is_offload_states": "what is offloaded follows from the devices that roles share",
        "model_download_type": "models are read from local folders, nothing is downloaded",
        "alive_check_interval": "a worker that ends is noticed at once",
        "model_name": "checkpoints go to checkpoint_config.output_dir, experiments are named by exp_name",
    }

    platform: str | None = None
    """The kind of device by name; by default the variable ROLL_PLATFORM, else what the machine has."""
    ray_address: str | None = None
    """An existing cluster to join; by default the variable RAY_ADDRESS, else a private local one."""
    exp_name: RunName = "roll"
    seed: NotNegative = 42
    rpc_timeout: Positive = 3600
    """Seconds that any wait for a worker may take."""
    output_dir: Folder = "./output"
    logging_dir: Folder = "./output/logs"
    rollout_dump_dir: Folder | None = None
    track_with: str | list[str] = "tensorboard"
    tracker_kwargs: Annotated[dict[str, Any], BeforeValidator(_mapping), BeforeValidator(_hide_secrets)] = Field(
        default_factory=dict
    )
    max_steps: Annotated[int, Field(ge=-1)] = 500
    save_steps: NotNegative = 50
    max_ckpt_to_keep: NotNegative = 0
    """0 keeps all."""
    logging_steps: NotNegative = 1
    eval_steps: NotNegative = 10
    rollout_batch_size: Positive = 128
    """Prompts of one step."""
    val_batch_size: int = 128
    max_running_requests: Positive = 128
    resume_from_checkpoint: bool | Folder = False
    """A checkpoint's folder, or true for the newest whole one."""
    checkpoint_config: CheckpointConfig | None = None
    prompt_length: Positive = 1024
    response_length: Positive | None = None
    sequence_length: Positive | None = None
    val_prompt_length: Positive | None = None
    val_sequence_length: Positive | None = None
    profiler_timeline: bool = False
    profiler_memory: bool = False
    profiler_output_dir: str = "./output/profiler"
    length_profiler_dir: str = "./output/profiler"
    otlp_output_dir: str = "./output/otlp"
    is_offload_optimizer_states_in_train_step: bool = False
    system_envs: Environment = Field(default_factory=dict)
    model_update_buffer_size_mb: Positive = 1024
    num_nodes: Positive | None = None
    """Counted from the devices that roles name, where it is not written."""
    num_gpus_per_node: Positive | None = None
    """Counted on the driver's machine, where it is not written."""
    rollout_mock: RolloutMock | None = None
    transfer_backend: TransferBackend | None = None
    generate_opt_level: Literal[0, 1] = 1
    is_num_return_sequences_expand: bool = False
    is_use_additional_prompts: bool = False
    max_additional_running_prompts: NotNegative = 16
    user_defined_rollout_loop_cls: str | None = None
    router_args: RouterArguments | None = None
    pipeline_cls: str | None = None
    """`rollout` generates and scores with a config that could train; else the keys tell the pipeline."""

    _notices: list[str] = PrivateAttr(default_factory=list)
    _source: str = PrivateAttr(default="")

    @property
    def notices(self) -> list[str]:
        """Sentences for the user about keys that were accepted and do nothing here."""
        return self._notices

    @property
    def source(self) -> str:
        """The file this config was read from; empty where it was made in memory."""
        return self._source

    @property
    def run_dir(self) -> Path:
        """Folder of the run's own records, such as its metrics."""
        return Path(self.output_dir) / "runs" / self.exp_name

    @property
    def checkpoint_dir(self) -> Path:
        """Folder that holds the checkpoint-N folders."""
        if self.checkpoint_config is not None and self.checkpoint_config.output_dir:
            return Path(self.checkpoint_config.output_dir)
        return Path(self.output_dir) / "models" / self.exp_name

    @property
    def response_window(self) -> int:
        """Largest number of response tokens: `response_length`, or what `sequence_length` leaves beside the prompt."""
        return window(self.response_length, self.sequence_length, self.prompt_length)

    @property
    def val_response_window(self) -> int:
        """The same in validation."""
        if self.val_sequence_length is None or self.val_prompt_length is None:
            return self.response_window
        return max(1, self.val_sequence_length - self.val_prompt_length)

    @property
    def device_span(self) -> int:
        """One more than the largest device number in use; roles with a model and no mapping use the first ones."""
        spans = [0]
        for path, role in self.roles().items():
            if role.devices:
                spans.append(max(role.devices) + 1)
            elif role.strategy_args is not None and not path.startswith("rewards."):
                spans.append(role.world_size or 1)
        return max(spans)

    @property
    def node_count(self) -> int:
        """Nodes of the run: as written, else as many as the device numbers need."""
        if self.num_nodes is not None:
            return self.num_nodes
        return max(1, -(-self.device_span // self.num_gpus_per_node)) if self.num_gpus_per_node else 1

    def devices_per_node(self, platform: Platform) -> int | None:
        """Devices each node must have: as written; where devices are processes, as many as are named; else None."""
        if self.num_gpus_per_node is not None:
            return self.num_gpus_per_node
        return max(1, self.device_span) if platform.ray_resource == "CPU" else None

    def roles(self) -> dict[str, WorkerConfig]:
        """Every role of the config by its dotted path, in the order of the schema."""
        found: dict[str, WorkerConfig] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, WorkerConfig):
                found[name] = value
            elif isinstance(value, dict):
                found |= {f"{name}.{key}": role for key, role in value.items() if isinstance(role, WorkerConfig)}
        return found

    def _complete(self, path: str, **changes: Any) -> None:
        """Replace a role by a copy with the given fields, before anybody has read the config."""
        role = getattr(self, path)
        if role is not None:
            self.__dict__[path] = role.model_copy(update=changes)


def window(response_length: int | None, sequence_length: int | None, prompt_length: int) -> int:
    """Response tokens that fit; 1 where nothing is left, which a rule reports."""
    if sequence_length is not None and response_length is None:
        return max(1, sequence_length - prompt_length)
    return response_length or 1


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
