"""What a platform says about configs that were written for another one; `roll migrate` does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RefusedOption:
    """An engine's option that does not work on the platform, if its value matches a regular expression."""

    key: str
    reason: str
    value: str = ""

    def refuses(self, value: object) -> bool:
        """Whether this value is meant."""
        return re.search(self.value, str(value), re.IGNORECASE) is not None


@dataclass(frozen=True)
class ModelFamily:
    """Options of fsdp2 for models whose name matches a regular expression; `training` for roles that train only."""

    name: str
    reason: str
    training: Mapping[str, Any] = field(default_factory=dict)
    every_role: Mapping[str, Any] = field(default_factory=dict)

    def has(self, model: str) -> bool:
        """Whether a model of this name or path belongs to the family."""
        return re.search(self.name, model, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Migration:
    """How configs of other platforms become configs of this one. The defaults change nothing.

    `strategies` and `engines` map names that do not work here to those that take their place. `attention` is what
    roles that train or score are told in `attn_implementation` where they say nothing. `variables` are those that
    no platform's prefix shows and that do not work here, each with the reason.
    """

    strategies: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    attention: str | None = None
    attention_reason: str = ""
    options: tuple[RefusedOption, ...] = ()
    families: tuple[ModelFamily, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    judge_needs_own_devices: bool = False
