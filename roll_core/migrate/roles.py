"""The roles of a config that is migrated, told by its sections: complete configs and half-written ones alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.config.device_mapping import DeviceMappingError, parse_device_mapping
from roll_core.config.resolution import kind_of_role
from roll_core.migrate.draft import Draft

_NAMED = ("rewards", "teacher")
"""Sections that may hold several roles by name."""


@dataclass(frozen=True)
class Role:
    """One role: where its section is, and whether its strategy trains and scores or generates."""

    path: tuple[str, ...]
    section: Mapping[str, Any]
    is_engine: bool

    @property
    def name(self) -> str:
        """The dotted path."""
        return ".".join(self.path)

    @property
    def strategy(self) -> str:
        """The strategy's name; empty where none is given."""
        return str(self.under("strategy_args").get("strategy_name") or "")

    @property
    def options(self) -> Mapping[str, Any]:
        """The strategy's options."""
        found = self.under("strategy_args").get("strategy_config")
        return found if isinstance(found, Mapping) else {}

    @property
    def devices(self) -> list[int]:
        """Device numbers; empty where there are none or they cannot be read."""
        try:
            return list(parse_device_mapping(self.section.get("device_mapping")) or ())
        except (DeviceMappingError, TypeError):
            return []

    @property
    def ranks(self) -> int:
        """Workers of a role that trains or scores."""
        world = self.section.get("world_size")
        return len(self.devices) or (world if isinstance(world, int) and world > 0 else 1)

    def under(self, key: str) -> Mapping[str, Any]:
        """A section of the role; empty where it is missing."""
        found = self.section.get(key)
        return found if isinstance(found, Mapping) else {}

    def at(self, *keys: str) -> tuple[str, ...]:
        """The path of a key of the role."""
        return (*self.path, *keys)


def roles_of(draft: Draft) -> list[Role]:
    """Every section with a strategy or devices, in the config's order."""
    found: list[Role] = []
    for name, section in draft.values.items():
        if not isinstance(section, Mapping):
            continue
        if _is_role(section):
            found.append(Role((name,), section, kind_of_role(name) == "infer"))
        elif name in _NAMED:
            inner = {key: one for key, one in section.items() if isinstance(one, Mapping) and _is_role(one)}
            found += [Role((name, key), one, kind_of_role(f"{name}.{key}") == "infer") for key, one in inner.items()]
    return found


def model_of(draft: Draft, role: Role) -> str:
    """The name or path of a role's model; empty where none is given."""
    own = role.under("model_args").get("model_name_or_path")
    default = "reward_pretrain" if role.path[0] == "critic" else f"{role.path[0]}_pretrain"
    return str(own or draft.get(default) or draft.get("pretrain") or "")


def _is_role(section: Mapping[str, Any]) -> bool:
    return isinstance(section.get("strategy_args"), Mapping) or section.get("device_mapping") is not None
