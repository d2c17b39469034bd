"""What the core needs to know about a kind of device."""

from roll_core.platforms.base import Ability, EngineDefaults, Memory, Platform

__all__ = ["Ability", "EngineDefaults", "Memory", "Platform"]
