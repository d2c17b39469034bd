"""The settings of a role, and of a reward, which is a role that scores."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SecretStr, model_validator

from roll_core.config.role_sections import (
    DataArgs,
    GeneratingArgs,
    ModelArgs,
    RouterReplay,
    SequencePackingArgs,
    StrategyArgs,
    TrainingArgs,
)
from roll_core.config.section import Section
from roll_core.config.values import (
    Devices,
    Environment,
    Names,
    NotNegative,
    Options,
    Positive,
)
from roll_core.names import OFFLOAD_COLLECTIVE_KEY


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
