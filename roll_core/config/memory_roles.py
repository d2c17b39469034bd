"""From a config to what each role needs in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.config.memory import (
    MicroBatch,
    Need,
    Sharding,
    Training,
    scoring_need,
    training_need,
)
from roll_core.config.memory_engines import Load, hf_need, reserving_need
from roll_core.config.memory_size import ModelSize, model_size
from roll_core.config.pipeline import BaseConfig
from roll_core.config.roles import WorkerConfig

_HALF = ("bf16", "bfloat16", "fp16", "float16", "half")
_RESERVING = {"vllm": ("gpu_memory_utilization", 0.9), "sglang": ("mem_fraction_static", 0.88)}
"""The key by which an engine is told its share of the device, and its own default."""


def role_need(
    config: BaseConfig, path: str, role: WorkerConfig, device_bytes: int | None = None
) -> tuple[ModelSize, Need]:
    """The size of a role's model, and what the role needs on each of its devices.

    Args:
        device_bytes: memory of one device, where it is known.
    """
    size = model_size(role.model_args.model_name_or_path, role.model_args.model_config_kwargs)
    name = role.strategy_name or ("fsdp2_train" if path in ("actor_train", "critic") else "")
    if name in ("fsdp2_train", "fsdp2_infer"):
        return size, _fsdp2(config, path, role, size, trains=name == "fsdp2_train")
    if name == "hf_infer":
        return size, _hf(config, path, role, size)
    if name in _RESERVING:
        return size, _reserving(config, path, role, size, name, device_bytes)
    return size, Need(remarks=(f"there is no model of the memory of strategy '{name}'",))


def _fsdp2(config: BaseConfig, path: str, role: WorkerConfig, size: ModelSize, *, trains: bool) -> Need:
    options = role.strategy_config
    split = _split(role, options, trains=trains)
    how = Training(
        recomputes=not role.model_args.disable_gradient_checkpointing,
        accumulation=role.training_args.gradient_accumulation_steps,
        needs_entropy=path == "actor_train" and getattr(config, "entropy_loss_coef", 0.0) != 0,
        has_values=path == "critic",
        tiles=_whole(options.get("tiled_num_shards"), 4) if options.get("apply_tiled_mlp") else 1,
    )
    batch = _micro_batch(config, role, trains=trains)
    return training_need(size, split, batch, how) if trains else scoring_need(size, split, batch, how)


def _split(role: WorkerConfig, options: Mapping[str, Any], *, trains: bool) -> Sharding:
    world = role.world_size or 1
    asked = _whole(options.get("fsdp_size"), 1)
    compute = _bytes(options.get("param_dtype") or role.model_args.dtype)
    is_offloaded = bool(options.get("offload_policy"))
    policy = options.get("wrap_policy")
    policy = policy if isinstance(policy, Mapping) else {}
    return Sharding(
        ranks=asked if 1 < asked < world else world,
        compute_bytes=compute,
        reduce_bytes=_bytes(options.get("reduce_dtype")),
        is_offloaded=is_offloaded,
        is_sharded=world > 1 or is_offloaded or (trains and compute < 4),
        wraps_embeddings=bool(policy.get("wrap_embeddings") and policy.get("wrap_lm_output")),
        wraps_experts=bool(policy.get("moe_experts")),
    )


def _micro_batch(config: BaseConfig, role: WorkerConfig, *, trains: bool) -> MicroBatch:
    prompt, response = config.prompt_length, config.response_window
    use = "train" if trains else "infer"
    if getattr(role, f"use_dynamic_batching_in_{use}"):
        budget = getattr(role, f"max_tokens_per_microbatch_in_{use}") or 0
        return MicroBatch(max(1, budget // max(1, prompt + response - 1)), prompt, response)
    rows = role.training_args.per_device_train_batch_size if trains else role.infer_batch_size
    return MicroBatch(rows, prompt, response)


def _hf(config: BaseConfig, path: str, role: WorkerConfig, size: ModelSize) -> Need:
    options = role.strategy_config
    prompt = _prompt_tokens(config, path)
    longest = prompt + _new_tokens(config, role)
    samples = config.rollout_batch_size * getattr(config, "num_return_sequences_in_group", 1)
    rows = min(_whole(options.get("max_running_requests"), 256), -(-samples // max(1, role.world_size or 1)))
    bound = options.get("max_cache_tokens")
    if isinstance(bound, int) and bound > 0:
        rows = max(1, min(rows, bound // max(1, longest)))
    load = Load(rows, prompt, longest, _whole(options.get("max_batch_tokens"), 8192))
    return hf_need(size, _bytes(role.model_args.dtype), load)


def _reserving(
    config: BaseConfig, path: str, role: WorkerConfig, size: ModelSize, name: str, device_bytes: int | None
) -> Need:
    key, default = _RESERVING[name]
    options = role.strategy_config
    given = options.get(key, default)
    share = float(given) if isinstance(given, int | float) and 0 < given <= 1 else default
    longest = _whole(options.get("max_model_len"), _prompt_tokens(config, path) + _new_tokens(config, role))
    width = max(1, role.num_gpus_per_worker)
    return reserving_need(size, _bytes(role.model_args.dtype), width, longest, share, device_bytes)


def _prompt_tokens(config: BaseConfig, path: str) -> int:
    """What an engine is given at most; a judge is given a prompt, a reference and a response."""
    is_judge = path.startswith("reward")
    return config.prompt_length + (2 * config.response_window if is_judge else 0)


def _new_tokens(config: BaseConfig, role: WorkerConfig) -> int:
    sampling = role.generating_args
    return (sampling.max_new_tokens if sampling is not None else None) or config.response_window


def _bytes(dtype: object) -> int:
    """Bytes of a number; None and whatever is no half precision count as float32."""
    return 2 if dtype in _HALF else 4


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
