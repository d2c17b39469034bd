"""Roles that train or score: from strategies that do not work on a platform to fsdp2, with the same arithmetic."""

from __future__ import annotations

import re
from typing import Any

from roll_core.migrate.batches import keep_mini_batch
from roll_core.migrate.draft import Draft
from roll_core.migrate.megatron import explain, kept_options, split_of
from roll_core.migrate.offers import is_offered
from roll_core.migrate.roles import Role, model_of
from roll_core.migration import Migration
from roll_core.plugins import Registry

FULLY_SHARDED = "fsdp2_train"
SCORING = "fsdp2_infer"
_LARGE = 7.0
"""Billions of parameters from which the guide keeps weights on the host."""
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z])|(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?=a\d)", re.IGNORECASE)


def migrate_training(draft: Draft, role: Role, migration: Migration, registry: Registry, platform: str) -> None:
    """Give a role a strategy that works on the platform, and its options in that strategy's words."""
    instead = _replacement(role, migration, registry, platform)
    if instead is None:
        return
    if not instead:
        what = f"'{role.strategy}' does not work on platform {platform}, and nothing here takes its place"
        draft.note(role.at("strategy_args", "strategy_name"), what)
        return
    split = split_of(role)
    reason = f"'{role.strategy}' does not run on platform {platform}; {instead} does"
    where = role.at("strategy_args", "strategy_config")
    wanted, before, old = _options(draft, role), dict(role.options), role.strategy
    draft.set(role.at("strategy_args", "strategy_name"), instead, reason)
    if draft.yaml.is_section(where):
        _fill(draft, where, wanted)
        for key in [key for key in before if key not in wanted]:
            _explain_and_remove(draft, old, (*where, key), before[key])
    else:
        told = {key: value for key, (value, _) in wanted.items()}
        draft.set(where, told, "; ".join(dict.fromkeys(why for _, why in wanted.values())))
    _checkpointing(draft, role, before)
    keep_mini_batch(draft, role, split)


def _fill(draft: Draft, where: tuple[str, ...], wanted: dict[str, tuple[Any, str]]) -> None:
    """Set options in the order given, above those that are there, which mostly go."""
    for key, (value, why) in reversed(wanted.items()):
        draft.set((*where, key), value, why, first=bool(draft.yaml.keys(where)))


def _explain_and_remove(draft: Draft, old: str, path: tuple[str, ...], value: Any) -> None:
    reason, left = explain(path[-1], value, old)
    draft.remove(path, reason)
    if left:
        draft.note(path, left)


def _replacement(role: Role, migration: Migration, registry: Registry, platform: str) -> str | None:
    """What takes the place of a role's strategy; None where it stays, empty where nothing can."""
    name = role.strategy
    if not name or "/" in name or (name not in migration.strategies and is_offered(registry, "train", name, platform)):
        return None
    if name in migration.strategies:
        return migration.strategies[name]
    if name == "hf_infer" or re.fullmatch(r"[a-z]+_infer", name):
        return SCORING
    return FULLY_SHARDED if re.fullmatch(r"[a-z]+_train", name) else ""


def _options(draft: Draft, role: Role) -> dict[str, tuple[Any, str]]:
    """fsdp2's options for a role that had another strategy, each with its reason."""
    precision = _precision(role)
    found: dict[str, tuple[Any, str]] = {
        "fsdp_size": (role.ranks, f"weights are sharded over all {role.ranks} devices of the role"),
        "param_dtype": (precision, "the precision that the role computed in"),
        "reduce_dtype": (precision, "gradients are added up in the same precision"),
        "reshard_after_forward": (True, "gathered weights are freed after use"),
    }
    size = _billions(model_of(draft, role))
    if size is None:
        why = "keeps weights on the host; the model's size does not show in its name, so the safe choice"
        draft.note(role.at("strategy_args", "strategy_config", "offload_policy"), "false is faster below 7 billion")
    else:
        why = f"{size:g} billion parameters: weights on the host from {_LARGE:g} billion on"
    found["offload_policy"] = (size is None or size >= _LARGE, why)
    return found | {key: (value, "fsdp2 knows it too") for key, value in kept_options(role.options).items()}


def _precision(role: Role) -> str:
    asked = str(role.under("model_args").get("dtype") or "bf16")
    if asked in ("fp32", "float32", "float") and not role.options.get("bf16"):
        return "fp32"
    return "bf16"


def _checkpointing(draft: Draft, role: Role, before: dict[str, Any]) -> None:
    path = role.at("model_args", "disable_gradient_checkpointing")
    if before.get("recompute_granularity") and role.path[0] != "reference" and draft.get(*path) is True:
        draft.set(path, False, "activations were recomputed by recompute_granularity")


def _billions(model: str) -> float | None:
    found = _SIZE.search(model.rstrip("/").rpartition("/")[2].replace("_", "-"))
    return float(found[1] or found[2]) if found else None
