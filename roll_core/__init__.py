"""RL post-training for large language models on any accelerator."""

import pluggy

from roll_core._version import PLUGIN_API, __version__
from roll_core.backend import Availability, Backend

hookimpl = pluggy.HookimplMarker("roll_core")
"""Marks a plugin module's function as an answer to one of the five hooks in `roll_core.hookspecs`."""

__all__ = ["PLUGIN_API", "Availability", "Backend", "__version__", "hookimpl"]
