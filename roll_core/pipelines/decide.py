"""What is decided before a run: the platform and the class of every role, once, on the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.config.runnable import require_runnable
from roll_core.config.schema import PPOConfig
from roll_core.pipelines.launch import Setting
from roll_core.plugins import Registry, load_plugins

if TYPE_CHECKING:
    from roll_core.pipelines.delivery import TransportChoice


def decide(config: PPOConfig, registry: Registry | None = None) -> Setting:
    """The setting of a run.

    Raises:
        ConfigError: with everything that cannot work here, before any worker starts.
    """
    registry = registry or load_plugins()
    check = require_runnable(config, registry)
    assert check.platform is not None and check.resolution.platform is not None, "a run without one has problems"
    return Setting(
        config=config,
        platform=check.platform,
        resolved_platform=check.resolution.platform,
        strategies=check.resolution.strategies,
        plugins=registry.fingerprint(),
        log_dir=Path(config.logging_dir).absolute() / config.exp_name,
        notices=(*config.notices, *check.notices),
        transport=_transport(config, registry, check.resolution.platform.name),
    )


def _transport(config: PPOConfig, registry: Registry, platform: str) -> TransportChoice | None:
    if config.transfer_backend is None or config.transfer_backend.backend_name is None:
        return None  # What follows imports torch, which others wait for until Ray has started.
    from roll_core.pipelines.delivery import choose_transport

    return choose_transport(config, registry, platform)
