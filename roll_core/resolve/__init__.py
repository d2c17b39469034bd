"""From names in a config to classes, and to the platform of a run."""

from roll_core.resolve.backend import Resolved, resolve_backend
from roll_core.resolve.platform import ResolvedPlatform, resolve_platform

__all__ = ["Resolved", "ResolvedPlatform", "resolve_backend", "resolve_platform"]
