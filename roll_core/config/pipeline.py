"""Settings that every pipeline has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr

from roll_core.config.roles import WorkerConfig
from roll_core.config.section import Section
from roll_core.config.values import Environment, Folder, NotNegative, Options, Positive, RunName
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
    def most_running(self) -> int | None:
        """Requests that an engine has at most, only where it is written: engines have bounds of their own, and with a
        second one the last bits of log-probabilities depend on time."""
        return self.max_running_requests if "max_running_requests" in self.model_fields_set else None

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
