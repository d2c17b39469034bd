"""What is known of a model's size: by its config.json, by its name, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.config.memory_names import published
from roll_core.config.memory_shapes import ModelShape

_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z0-9])")


@dataclass(frozen=True)
class ModelSize:
    """What is known of a model's size, and where from. `shape` is None where only the number of parameters is."""

    parameters: int | None
    shape: ModelShape | None
    source: str


def model_size(name: str | None, changes: Mapping[str, Any] | None = None) -> ModelSize:
    """The size of the model that a config names by folder or hub name.

    Args:
        changes: keys of the model's config that the run changes (`model_config_kwargs`).
    """
    if not name:
        return ModelSize(None, None, "no model is named")
    file = Path(name).expanduser() / "config.json"
    if file.is_file():
        return _from_file(file, changes or {})
    known = published(name)
    if known is not None:
        return ModelSize(known[1].parameters, known[1], f"published sizes of {known[0]}")
    found = _BILLIONS.search(name.rpartition("/")[2].lower().replace("_", "-"))
    if found is not None:
        parameters = round(float(found[1]) * 1e9)
        return ModelSize(parameters, None, f"{found[1]} billion parameters, by its name; its layers are not known")
    return ModelSize(None, None, f"the size of '{name}' is not known: no folder here, no published name")


def shape_of(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape that a transformers config describes; None where it has other parts than `ModelShape` knows."""
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, Mapping) else config
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        kind = str(config.get("model_type", ""))
        if config.get("kv_lora_rank"):
            return None  # Attention through a latent space: other projections, another cache.
        experts = int(
            config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts") or 0
        )
        expert_width = int(config.get("moe_intermediate_size") or (config["intermediate_size"] if experts else 0))
        return ModelShape(
            hidden=hidden,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            intermediate=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            is_tied=bool(config.get("tie_word_embeddings", False)),
            has_bias=bool(config.get("attention_bias", kind.startswith("qwen2"))),
            has_query_norm=kind.startswith("qwen3"),
            experts=experts,
            experts_per_token=int(config.get("num_experts_per_tok") or 0),
            expert_intermediate=expert_width,
            dense_layers=int(config.get("first_k_dense_replace") or len(config.get("mlp_only_layers") or ())),
            shared_intermediate=int(config.get("n_shared_experts") or 0) * expert_width
            or int(config.get("shared_expert_intermediate_size") or 0),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _from_file(file: Path, changes: Mapping[str, Any]) -> ModelSize:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return ModelSize(None, None, f"{file} cannot be read: {error}")
    shape = shape_of({**config, **changes}) if isinstance(config, dict) else None
    if shape is None:
        return ModelSize(None, None, f"{file} does not describe a model whose sizes are known")
    return ModelSize(shape.parameters, shape, f"{file}")
