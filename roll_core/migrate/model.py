"""What roles say about their model: attention, adapters' neighbours, packing, and what a family of models needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.migrate.batches import keep_mini_batch
from roll_core.migrate.draft import Draft
from roll_core.migrate.offers import is_offered
from roll_core.migrate.roles import Role, model_of
from roll_core.migration import Migration
from roll_core.platforms.base import Ability, Platform
from roll_core.plugins import Registry

_LONG_NAME = {"fa2": "flash_attention_2"}
_SHORT_NAME = {"flash_attention_2": "fa2"}
_PATCHES = {"apply_expert_patch": "expert_patch", "apply_tiled_mlp": "tiled_mlp"}
_WITHOUT_PATCH = {"apply_expert_patch": ("wrap_policy",), "apply_tiled_mlp": ("tiled_num_shards",)}


def migrate_model(draft: Draft, role: Role, migration: Migration, platform: Platform) -> None:
    """Attention, the device that transformers is told, and sequences over several devices."""
    _attention(draft, role, migration, platform)
    device_map = role.at("model_args", "device_map")
    given = draft.get(*device_map)
    if isinstance(given, str) and ":" in given:
        draft.remove(device_map, "devices are those of device_mapping")
    ulysses = role.at("model_args", "ulysses_size")
    size = draft.get(*ulysses)
    if type(size) is int and size > 1 and not role.is_engine and Ability.ULYSSES not in platform.abilities():
        draft.remove(ulysses, f"platform {platform.name} does not split sequences over devices")
        if role.strategy.startswith("fsdp2"):
            keep_mini_batch(draft, role, size)


def migrate_packing(draft: Draft, role: Role) -> None:
    """Packed rows become micro-batches that are cut by tokens, which holds as many tokens at once."""
    if role.section.get("use_sequence_packing") is not True:
        return
    reason = "fsdp2 cuts micro-batches by tokens instead of packing rows"
    packing = role.under("sequence_packing_args")
    trains = str(draft.get(*role.at("strategy_args", "strategy_name"))).endswith("_train")
    for use, limit in (("train", "train"), ("infer", "forward")):
        if use == "train" and not trains:
            continue
        key = f"max_tokens_per_microbatch_in_{use}"
        tokens = _tokens(draft, packing.get(f"max_packed_sequence_length_{limit}"), role)
        if tokens is None:
            draft.note(role.at(key), "say how many tokens fit at once; packing said it by lengths that cannot be read")
            continue
        draft.set(role.at(f"use_dynamic_batching_in_{use}"), True, reason)
        if not draft.get(*role.at(key)):
            draft.set(role.at(key), tokens, reason)
    draft.remove(role.at("use_sequence_packing"), reason)
    draft.remove(role.at("sequence_packing_args"), reason)


def migrate_family(
    draft: Draft, role: Role, migration: Migration, registry: Registry, platform: Platform, config_is_moe: bool
) -> None:
    """Patches that the model needs on the platform; those that nobody brings there go."""
    where = role.at("strategy_args", "strategy_config")
    for key, name in _PATCHES.items():
        if draft.get(*where, key) and not is_offered(registry, "patch", name, platform.name):
            reason = f"no plugin brings the model patch {name} for platform {platform.name}"
            for one in (key, *_WITHOUT_PATCH[key]):
                draft.remove((*where, one), reason)
    model = model_of(draft, role)
    family = next((one for one in migration.families if one.has(model)), None)
    strategy = str(draft.get(*role.at("strategy_args", "strategy_name")))
    if family is not None and strategy.startswith("fsdp2"):
        wanted = dict(family.every_role) | (dict(family.training) if strategy.endswith("_train") else {})
        _add(draft, where, wanted, family.reason)
    elif config_is_moe and migration.families:
        draft.note(where, f"'{model}' has experts of a kind the platform has no patch for: look whether it trains")


def _add(draft: Draft, where: tuple[str, ...], wanted: Mapping[str, Any], reason: str) -> None:
    for key, value in wanted.items():
        if draft.get(*where, key) is None:
            draft.set((*where, key), value, reason)


def _attention(draft: Draft, role: Role, migration: Migration, platform: Platform) -> None:
    old, new = role.at("model_args", "flash_attn"), role.at("model_args", "attn_implementation")
    if draft.get(*old) is not None:
        reason = "attention is chosen by attn_implementation, which transformers reads"
        if draft.get(*new) is None:
            draft.rename(old, "attn_implementation", reason)
        else:
            draft.remove(old, reason)
    asked = draft.get(*new)
    if asked is None:
        if migration.attention is not None and not role.is_engine:
            draft.set(new, migration.attention, migration.attention_reason)
    elif asked != "auto" and _LONG_NAME.get(asked, asked) not in platform.attention:
        best = migration.attention or _SHORT_NAME.get(platform.attention[0], platform.attention[0])
        draft.set(new, best, f"platform {platform.name} does not offer '{asked}'")


def _tokens(draft: Draft, packed: Any, role: Role) -> int | None:
    """Tokens of a micro-batch: what was packed at once, and at least the longest row."""
    total = draft.get("sequence_length")
    if type(total) is not int:
        prompt, response = draft.get("prompt_length", default=1024), draft.get("response_length")
        if type(prompt) is not int or type(response) is not int:
            return packed if type(packed) is int else None
        total = prompt + response
    rounding = role.section.get("sequence_length_round_in_train", 4)
    longest: int = -(-total // rounding) * rounding if type(rounding) is int and rounding > 0 else total
    return max(longest, packed) if type(packed) is int else longest
