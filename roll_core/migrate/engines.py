"""Engines: from one that a platform does not have to one that it has, and options that do not work there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.migrate.draft import Draft
from roll_core.migrate.roles import Role
from roll_core.migration import Migration
from roll_core.names import NO_GRAPH_KEY

_SGLANG_TO_VLLM: Mapping[str, str] = {
    "mem_fraction_static": "gpu_memory_utilization",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "context_length": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "page_size": "block_size",
    "random_seed": "seed",
    "kv_cache_dtype": "kv_cache_dtype",
    "load_format": "load_format",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "trust_remote_code": "trust_remote_code",
    "quantization": "quantization",
    "dtype": "dtype",
    "disable_custom_all_reduce": "disable_custom_all_reduce",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "max_model_len": "max_model_len",
    "sleep_level": "sleep_level",
}
_WORDS: Mapping[tuple[str, str], Mapping[str, str]] = {("sglang", "vllm"): _SGLANG_TO_VLLM}
_OPPOSITES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("sglang", "vllm"): {NO_GRAPH_KEY: "enforce_eager", "disable_radix_cache": "enable_prefix_caching"}
}
"""Options that stand for another one: the first with the same value, the second with the opposite."""

_ROLLOUT = ("actor_infer", "student_infer")


def migrate_engine(draft: Draft, role: Role, migration: Migration, platform: str) -> None:
    """Replace the engine of a role where the platform has another one, and drop options that it refuses."""
    name = role.strategy
    if name in migration.engines:
        _replace(draft, role, name, migration.engines[name], platform)
    where = role.at("strategy_args", "strategy_config")
    options = draft.get(*where)
    for refused in migration.options:
        if isinstance(options, Mapping) and refused.key in options and refused.refuses(options[refused.key]):
            draft.remove((*where, refused.key), refused.reason)
            draft.note((*where, refused.key), f"{refused.reason}: look at memory and speed")


def fit_length(draft: Draft, role: Role) -> None:
    """Make room for the longest row, where an engine was told less: it would cut responses off without a word."""
    where = role.at("strategy_args", "strategy_config", "max_model_len")
    limit, prompt = draft.get(*where), draft.get("prompt_length", default=1024)
    total, response = draft.get("sequence_length"), draft.get("response_length")
    if type(response) is int and type(prompt) is int:
        total = max(prompt + response, total if type(total) is int else 0)
    validation = draft.get("val_sequence_length")
    needed = max(total if type(total) is int else 0, validation if type(validation) is int else 0)
    if role.path[0] in _ROLLOUT and type(limit) is int and limit < needed:
        draft.set(where, needed, f"a prompt and its response have up to {needed} tokens, and longer ones were cut off")


def _replace(draft: Draft, role: Role, old: str, new: str, platform: str) -> None:
    draft.set(role.at("strategy_args", "strategy_name"), new, f"platform {platform} generates with {new}")
    where = role.at("strategy_args", "strategy_config")
    words = _WORDS.get((old, new), {})
    for key, value in dict(role.options).items():
        if key in words:
            if words[key] != key:
                draft.rename((*where, key), words[key], f"{new}'s word for it")
        elif not _opposite(draft, (*where, key), value, (old, new)):
            draft.remove((*where, key), f"an option of {old} that {new} does not have")
    memory = (*where, "gpu_memory_utilization")
    if draft.get(*memory) is not None:
        draft.note(memory, f"is a share of the whole device for {new}, for {old} it left out activations: try it")
    router = ("router_args", "router_name")
    if old in str(draft.get(*router, default="")).lower():
        draft.remove(router, f"routes to {old}")


def _opposite(draft: Draft, path: tuple[str, ...], value: Any, pair: tuple[str, str]) -> bool:
    words = list(_OPPOSITES.get(pair, {}).items())
    for at, (key, instead) in enumerate(words):
        if path[-1] == key and isinstance(value, bool):
            reason = f"{pair[1]}'s word for it"
            draft.remove(path, reason)
            draft.set((*path[:-1], instead), value if at == 0 else not value, reason)
            return True
    return False
