"""A config file for another platform: read, changed role by role, checked, and told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from roll_core.config.files import compose_file
from roll_core.config.interpolation import referenced_keys, resolved
from roll_core.migrate.draft import Change, Draft, Left
from roll_core.migrate.engines import fit_length, migrate_engine
from roll_core.migrate.environment import migrate_environment
from roll_core.migrate.model import migrate_family, migrate_model, migrate_packing
from roll_core.migrate.roles import Role, roles_of
from roll_core.migrate.training import migrate_training
from roll_core.migrate.yaml_text import YamlText
from roll_core.migration import Migration
from roll_core.platforms.base import Platform
from roll_core.plugins import Registry
from roll_core.resolve import resolve_backend

PRESETS = re.compile(r"(?:.*/)?(deepspeed_\w+)(?:@.*)?")
"""Included files that hold nothing but options of a trainer."""

_OF_EXPERTS = {"moe_grouped_gemm", "moe_token_dispatcher_type", "moe_layer_recompute"}


@dataclass(frozen=True)
class Migrated:
    """A config for another platform: its text, what was changed, and what a person has to look at."""

    text: str
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def migrate_file(path: Path, platform_name: str, registry: Registry) -> Migrated:
    """The text of a config file, made for another platform. Nothing is written.

    Raises:
        PluginError: no such platform is installed.
        ConfigError: the file is no YAML mapping.
    """
    platform = resolve_backend(registry, "platform", platform_name).load()()
    assert isinstance(platform, Platform)
    composed = compose_file(path).config
    with path.open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    values, _ = resolved(composed)
    if not values:
        return Migrated(text)
    # A mark that some editors put before the first character; it is no part of the YAML.
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    draft = Draft(YamlText(text.removeprefix(mark)), values)
    migrate(draft, platform, registry)
    return Migrated(mark + draft.yaml.text, draft.changes, draft.left)


def migrate(draft: Draft, platform: Platform, registry: Registry) -> None:
    """Change a draft, step by step; a second time changes nothing."""
    migration = platform.migration()
    _platform_key(draft, platform)
    has_experts = any(_has_experts(role) for role in roles_of(draft))
    for role in _own_roles(draft):
        if role.is_engine:
            migrate_engine(draft, role, migration, platform.name)
            fit_length(draft, role)
        else:
            migrate_training(draft, role, migration, registry, platform.name)
    for role in _own_roles(draft):
        migrate_model(draft, role, migration, platform)
        if not role.is_engine:
            migrate_packing(draft, role)
            migrate_family(draft, role, migration, registry, platform, has_experts)
    migrate_environment(draft, migration, platform.name)
    _presets(draft)
    _judges(draft, migration, platform)


def _own_roles(draft: Draft) -> list[Role]:
    """Roles that this file describes; those of included files are changed there."""
    own = []
    for role in roles_of(draft):
        described = [key for key in ("strategy_args", "device_mapping", "model_args") if key in role.section]
        if all(draft.yaml.has(role.at(key)) for key in described):
            own.append(role)
        else:
            draft.note(role.path, "is described in another file, at least in part; migrate that file or move it here")
    return own


def _platform_key(draft: Draft, platform: Platform) -> None:
    written = draft.get("platform")
    if written is not None and written != platform.name:
        draft.set(("platform",), platform.name, "the config names its platform")


def _has_experts(role: Role) -> bool:
    sizes = (role.options.get("expert_model_parallel_size"), role.options.get("ep_size"))
    return any(isinstance(size, int) and size > 1 for size in sizes) or bool(_OF_EXPERTS & set(role.options))


def _presets(draft: Draft) -> None:
    """Included presets of a trainer that nothing refers to any more."""
    config = OmegaConf.create(draft.yaml.text)
    if not isinstance(config, DictConfig):
        return
    used = {one.partition(".")[0] for one in referenced_keys(config)}
    for item in list(_items(OmegaConf.to_container(config, resolve=False))):
        found = PRESETS.fullmatch(item)
        if found and found[1] not in used:
            draft.yaml.remove_item(("defaults",), item)
            draft.changes.append(Change("defaults", item, "(removed)", "nothing refers to these options any more"))


def _items(plain: Any) -> list[str]:
    listed = plain.get("defaults") if isinstance(plain, Mapping) else None
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


def _judges(draft: Draft, migration: Migration, platform: Platform) -> None:
    roles = roles_of(draft)
    for judge in roles:
        if judge.path[0] not in ("rewards", "reward_model", "reward") or not judge.devices:
            continue
        others = [role for role in roles if role.path[0] in ("actor_train", "actor_infer")]
        sharing = [role.name for role in others if set(role.devices) & set(judge.devices)]
        if sharing and migration.judge_needs_own_devices:
            what = f"shares devices with {' and '.join(sharing)}; on platform {platform.name} a judge needs its own"
            draft.note(judge.at("device_mapping"), what)
        elif migration.judge_needs_own_devices:
            draft.note(judge.at("device_mapping"), "has devices of its own, as it must: keep it so in other clusters")
