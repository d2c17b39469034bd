"""Whether somebody offers a name on a platform."""

from __future__ import annotations

from roll_core.backend import Kind
from roll_core.errors import PluginError
from roll_core.plugins import Registry
from roll_core.resolve import resolve_backend


def is_offered(registry: Registry, kind: Kind, name: str, platform: str) -> bool:
    """Whether a backend of this name can be had on the platform."""
    try:
        resolve_backend(registry, kind, name, platform)
    except PluginError:
        return False
    return True
