"""The sections of a role: its model, its data, how it trains, how it samples, and its strategy."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from roll_core.config.section import Section
from roll_core.config.values import (
    DType,
    Folder,
    Fraction,
    Names,
    NotNegative,
    Positive,
)


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
