"""Environments: what an agent acts in, in text."""

from roll_core.envs.base import BUILTIN_ENVIRONMENTS, ActionParser, Environment, make_environment

__all__ = ["BUILTIN_ENVIRONMENTS", "ActionParser", "Environment", "make_environment"]
