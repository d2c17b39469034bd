"""The settings of one role: its model, its data, how it trains or samples, and the devices it runs on."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from roll_core.config.section import Section
from roll_core.config.values import (
    Devices,
    DType,
    Environment,
    Folder,
    Fraction,
    Names,
    NotNegative,
    Options,
    Positive,
)
from roll_core.names import OFFLOAD_COLLECTIVE_KEY


def _whole_if_absent(given: Any) -> Any:
    return {} if given is None else given


class ModelArgs(Section):
    """Which model a role loads, and how."""

    without_effect: ClassVar[dict[str, str]] = {
        "flash_attn": "attention is chosen by attn_implementation",
    }

    model_name_or_path: Folder | None = None
    """A local folder; by default the config's `pretrain` (`reward_pretrain` for critics)."""
    adapter_name_or_path: str | None = None
    attn_implementation: str | None = None
    """An implementation of transformers, `fa2` or `auto`; by default the platform's best."""
    dtype: DType | None = "bf16"
    model_type: str | None = None
    num_labels: Positive = 1
    model_config_kwargs: Annotated[dict[str, Any], BeforeValidator(_whole_if_absent)] = Field(default_factory=dict)
    moe_aux_loss_coef: float | None = None
    disable_gradient_checkpointing: bool = False
    gradient_checkpointing_use_reentrant: bool | None = None
    device_map: str | dict[str, Any] | None = "balanced"
    freeze_module_prefix: str | None = None
    """Modules that are not trained, as a comma-separated list."""
    ulysses_size: Positive = 1
    lora_rank: NotNegative | None = 8
    """0 is no adapter."""
    lora_alpha: float | None = None
    """By default twice the rank."""
    lora_dropout: Fraction = 0.0
    lora_target: str | list[str] | None = None
    """Modules that get an adapter: a comma-separated list or a pattern; without it there is no adapter."""
    additional_target: str | list[str] | None = None
    autocast_adapter_dtype: bool = True


class TrainingArgs(Section):
    """Optimiser, schedule and batch sizes of a role that trains."""

    without_effect: ClassVar[dict[str, str]] = {
        "output_dir": "checkpoints go to checkpoint_config.output_dir",
        "tf32": "matrix precision is the platform's choice",
    }

    max_steps: int = -1
    num_train_epochs: float = 1.0
    learning_rate: Annotated[float, Field(ge=0)] = 5e-5
    lr_scheduler_type: str = "linear"
    """Name of a schedule of transformers: linear, cosine, constant, ..."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    per_device_train_batch_size: Positive = 8
    per_device_eval_batch_size: Positive = 8
    gradient_accumulation_steps: Positive = 1
    warmup_ratio: Fraction = 0.0
    warmup_steps: NotNegative = 0
    """Wins over `warmup_ratio` where it is positive."""
    seed: int | None = None
    """By default the config's."""
    data_seed: int | None = None
    dataloader_num_workers: NotNegative = 0
    fp16: bool = False
    bf16: bool = False
    save_hf_model: bool = False


class DataArgs(Section):
    """Data files and how a row becomes a prompt."""

    without_effect: ClassVar[dict[str, str]] = {
        "interleave_probs": "domains are mixed by domain_interleave_probs",
    }

    file_name: Names | None = None
    """JSONL files, each looked for as given, then under `dataset_dir`."""
    eval_file_name: Names | None = None
    dataset_dir: Folder | None = None
    dataset_type: str = "json"
    template: str | None = "native"
    """A chat template's name; `native` is the tokenizer's own."""
    domain_interleave_probs: dict[str, float] | None = None
    """Share of each step's prompts per domain; the shares add up to 1."""
    messages: str | None = None
    """Column with the conversation; by default `messages` where a row has it, else `prompt`."""
    prompt: str | None = None
    response: str | None = "solution"
    tag: str | None = "tag"
    id: str | None = "id"
    image: str | None = None
    video: str | None = None
    preprocessing_num_workers: Positive | None = None
    custom_data_kwargs_func: str | None = None
    image_max_pixels: Positive | None = None
    image_min_pixels: Positive | None = None
    video_max_pixels: Positive | None = None
    video_min_pixels: Positive | None = None
    video_fps: float | None = None
    video_maxlen: Positive | None = None
    max_samples: Positive | None = None


class GeneratingArgs(Section):
    """How to sample. What is left out is filled in from the pipeline; what is written stays."""

    do_sample: bool = True
    temperature: Annotated[float, Field(ge=0)] = 0.95
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.7
    top_k: Annotated[int, Field(ge=-1)] = 50
    """0 and -1 keep every token."""
    num_beams: Positive = 1
    max_length: Positive | None = None
    max_new_tokens: Positive | None = None
    """By default the response length."""
    repetition_penalty: Annotated[float, Field(gt=0)] = 1.0
    length_penalty: float = 1.0
    num_return_sequences: Positive | None = None
    """By default `num_return_sequences_in_group`, and 1 in validation."""
    stop_strings: Names | None = None
    include_stop_str_in_output: bool | None = None
    logprobs: NotNegative | None = None


def _without_dead_options(given: Any) -> Any:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise PydanticCustomError("mapping", "a mapping of the strategy's options is expected")
    return {key: value for key, value in given.items() if key not in StrategyArgs.options_without_effect}


class StrategyArgs(Section):
    """Which strategy serves the role, and the strategy's own options."""

    options_without_effect: ClassVar[dict[str, str]] = {
        "use_batched_model_update": "weights always travel in buckets of model_update_buffer_size_mb",
    }

    strategy_name: str = "fsdp2_train"
    strategy_config: Annotated[dict[str, Any], BeforeValidator(_without_dead_options)] = Field(default_factory=dict)


class SequencePackingArgs(Section):
    """How sequences are packed into rows, for strategies that can."""

    algorithm: Literal["none", "load_balance"] = "none"
    max_packed_sequence_length_forward: Positive | None = None
    max_packed_sequence_length_train: Positive | None = None
    min_num_micro_batches_forward: Positive = 1
    min_num_micro_batches_train: Positive = 1


class RouterReplay(Section):
    """Whether the trainer repeats the expert choices that the engine made."""

    mode: Literal["disable", "R2", "R3"] = "disable"


class WorkerConfig(Section):
    """One role. `devices` are its device numbers in order; `world_size` is its number of workers."""

    without_effect: ClassVar[dict[str, str]] = {
        "use_remove_padding": "micro-batches are always trimmed to their own longest row",
        OFFLOAD_COLLECTIVE_KEY: "what an offload frees is the strategy's choice",
        "eval_steps": "validation runs every top-level eval_steps",
    }

    name: str | None = None
    worker_cls: str | None = None
    """A built-in name, `pkg.mod.Class` or `./file.py:Class`."""
    pg_variant: Literal["vanilla", "tis", "topr", "cispo", "kimi15", "ppo"] | None = None
    model_args: ModelArgs = Field(default_factory=ModelArgs)
    training_args: TrainingArgs = Field(default_factory=TrainingArgs)
    data_args: DataArgs | None = None
    generating_args: GeneratingArgs | None = None
    strategy_args: StrategyArgs | None = None
    device_mapping: Devices = None
    world_size: NotNegative | None = None
    num_gpus_per_worker: NotNegative = 1
    """Devices of one worker; engines that split a model take the product of its parallel sizes by default."""
    model_update_frequency: Positive = 1
    infer_batch_size: Positive = 16
    """Rows scored at once."""
    backend_timeout: Positive = 30
    """Minutes that a collective may take."""
    system_envs: Environment = Field(default_factory=dict)
    topr_positive_weight: float = 1.0
    topr_negative_weight: float = 1.0
    tis_lower_bound: float = 0.0
    tis_upper_bound: float = 1.0
    cispo_epsilon_low: float = 0.1
    cispo_epsilon_high: float = 0.1
    cispo_use_unified_mask: bool = False
    kimi15_tau: float = 0.1
    max_concurrency: Positive = 1
    use_dynamic_batching_in_train: bool = False
    max_tokens_per_microbatch_in_train: NotNegative | None = None
    sequence_length_round_in_train: Positive = 4
    use_dynamic_batching_in_infer: bool = False
    max_tokens_per_microbatch_in_infer: NotNegative | None = None
    sequence_length_round_in_infer: Positive = 4
    use_sequence_packing: bool = False
    sequence_packing_args: SequencePackingArgs | None = None
    logits_in_fp32: bool = False
    router_replay: RouterReplay | None = None
    apply_loss_scale: bool = True
    mtp_training_mode: Literal["disabled", "standalone", "joint"] = "disabled"
    opd_kl_coef: float | None = None
    tag_included: Names = Field(default_factory=list)

    @property
    def devices(self) -> list[int]:
        """Device numbers in order; empty for a role that runs on plain processes."""
        return list(self.device_mapping or ())

    @property
    def strategy_name(self) -> str | None:
        """The strategy's name, None where the role has none."""
        return None if self.strategy_args is None else self.strategy_args.strategy_name

    @property
    def strategy_config(self) -> dict[str, Any]:
        """The strategy's own options; empty where there are none."""
        return {} if self.strategy_args is None else self.strategy_args.strategy_config

    @property
    def trains(self) -> bool:
        """Whether the role's strategy has an optimiser."""
        return (self.strategy_name or "").endswith("_train")

    @property
    def model_parallel_size(self) -> int:
        """Ranks that work on the same rows; the others have rows of their own."""
        sizes = [self.model_args.ulysses_size]
        if (self.strategy_name or "").startswith("megatron"):
            sizes = [self.strategy_config.get(key) or 1 for key in _MEGATRON_SPLIT_KEYS]
        return math.prod(size for size in sizes if type(size) is int and size > 0)

    @property
    def data_parallel_size(self) -> int:
        """Ranks that have rows of their own."""
        return max(1, (self.world_size or 1) // self.model_parallel_size)

    @property
    def mini_batch_size(self) -> int:
        """Rows of one optimiser step, over all ranks."""
        training = self.training_args
        return training.per_device_train_batch_size * training.gradient_accumulation_steps * self.data_parallel_size

    @model_validator(mode="after")
    def _count_workers(self) -> Self:
        given = self.model_fields_set
        if not self.devices:
            self._set("num_gpus_per_worker", 0)
            if self.world_size is None:
                self._set("world_size", 1)
            return self
        if "num_gpus_per_worker" not in given:
            self._set("num_gpus_per_worker", engine_width(self))
        if "world_size" not in given or self.world_size is None:
            self._set("world_size", len(self.devices) // max(1, self.num_gpus_per_worker))
        return self

    def _set(self, field: str, value: Any) -> None:
        # Sections are frozen for their readers; a validator completes one before anybody has read it.
        self.__dict__[field] = value


_MEGATRON_SPLIT_KEYS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
)
_SPLIT_KEYS = ("tensor_parallel_size", "pipeline_parallel_size")


def is_engine(role: WorkerConfig) -> bool:
    """Whether the role's strategy is an engine with processes, arguments and defaults of its own."""
    return role.strategy_name in ("vllm", "sglang")


def engine_width(role: WorkerConfig) -> int:
    """Devices that one engine of the role spans by its own parallel sizes; 1 for everything that is no engine."""
    if not is_engine(role):
        return 1
    sizes = [role.strategy_config.get(key) or 1 for key in _SPLIT_KEYS]
    return sizes[0] * sizes[1] if all(type(size) is int and size > 0 for size in sizes) else 1


class FilterConfig(Section):
    """Which groups of answers are kept. `type` is a built-in name or a dotted path."""

    type: str = "no_filter"
    filter_args: Options = Field(default_factory=dict)


class RewardConfig(WorkerConfig):
    """One reward domain: which tags it answers to, and how it scores.

    A domain answers to the tags in `tag_included`, and to its own name as a tag unless another one claims it.
    """

    without_effect: ClassVar[dict[str, str]] = {
        "reward_manager_config": "rewards are routed by tag",
    }

    code_url: str | None = None
    use_local: bool = True
    judge_prompt: str | None = None
    judge_model_type: str | None = None
    judge_model_name: str | None = None
    judge_api_url: str | None = None
    judge_api_key: SecretStr | None = None
    format_pattern: str | None = None
    reward_type: str | None = None
    response_length_penalty_coef: float = 0.0
    query_filter_config: FilterConfig = Field(default_factory=FilterConfig)
    response_filter_config: FilterConfig = Field(default_factory=FilterConfig)
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that one score may take; by default the reward's own deadline."""
    reward_args: Options = Field(default_factory=dict)
    """Keyword arguments of the reward, by their own names."""
    ungraded: Literal["mask", "zero"] = "mask"
    """What training does with a sample that could not be graded: leaves it out, or counts it as a reward of 0."""

    @property
    def num_processes(self) -> int | None:
        """Samples that one of the workers scores at once (`max_concurrency`); None where nobody said."""
        return self.max_concurrency if "max_concurrency" in self.model_fields_set else None
