"""Environment variables in system_envs that another platform reads."""

from __future__ import annotations

from collections.abc import Mapping

from roll_core import names
from roll_core.migrate.draft import Draft
from roll_core.migration import Migration


def migrate_environment(draft: Draft, migration: Migration, platform: str) -> None:
    """Translate what the platform has under another name, and take out what nothing there reads."""
    for path in _sections(draft):
        for name, value in dict(draft.get(*path, default={})).items():
            _variable(draft, (*path, str(name)), value, migration, platform)
        if draft.get(*path) == {} and any(change.path.startswith(".".join((*path, ""))) for change in draft.changes):
            draft.remove(path, "nothing is left in it")


def _sections(draft: Draft) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [("system_envs",)] if isinstance(draft.get("system_envs"), Mapping) else []
    for name, section in draft.values.items():
        if isinstance(section, Mapping):
            found += [(name, "system_envs")] if isinstance(section.get("system_envs"), Mapping) else []
            for key, inner in section.items():
                if isinstance(inner, Mapping) and isinstance(inner.get("system_envs"), Mapping):
                    found.append((name, str(key), "system_envs"))
    return found


def _variable(draft: Draft, path: tuple[str, ...], value: object, migration: Migration, platform: str) -> None:
    name = path[-1]
    if name in migration.variables:
        draft.remove(path, migration.variables[name])
        return
    readers = names.platforms_of_variable(name)
    if readers and platform not in readers:
        same = names.same_variable(name, platform)
        if name.endswith("_VISIBLE_DEVICES"):
            draft.remove(path, "a worker sees the devices that device_mapping gives it")
            draft.note(path, f"was {value}: if a node's devices are to be limited, that is for its shell to say")
        elif same is None:
            draft.remove(path, f"platform {platform} does not read it")
        elif draft.get(*path[:-1], same) is not None:
            draft.remove(path, f"platform {platform} reads {same}, which is there too")
        else:
            draft.rename(path, same, f"what platform {platform} calls {name}")
        return
    foreign = [one for one in names.platforms_of_paths(str(value)) if one != platform]
    if foreign and platform not in names.platforms_of_paths(str(value)):
        draft.remove(path, f"leads to the software of platform {foreign[0]}")
        draft.note(path, f"was {value}; give it what platform {platform} needs, if anything")
