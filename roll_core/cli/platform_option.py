"""A platform that was named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_core.plugins import Registry


def known_platform(registry: Registry, asked: str) -> str:
    """The platform's own name.

    Raises:
        PluginError: no installed plugin has it. Its exit code is 2 in every command, as in `roll check`: 1 means
            warnings in some.
    """
    from roll_core.errors import PluginError
    from roll_core.resolve import resolve_backend

    try:
        return resolve_backend(registry, "platform", asked).backend.name
    except PluginError as error:
        error.exit_code = 2
        raise
