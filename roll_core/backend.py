"""What a plugin offers: a name, and where its class is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["platform", "train", "infer", "transport", "patch"]
"""The five seams a plugin can fill."""

HOOK_OF_KIND: dict[Kind, str] = {
    "platform": "roll_platforms",
    "train": "roll_train_strategies",
    "infer": "roll_infer_strategies",
    "transport": "roll_transports",
    "patch": "roll_model_patches",
}

NOUN_OF_KIND: dict[Kind, str] = {
    "platform": "platform",
    "train": "training strategy",
    "infer": "inference strategy",
    "transport": "transport",
    "patch": "model patch",
}
"""How messages call the kinds."""


@dataclass(frozen=True)
class Availability:
    """Whether something can be used here and now. The reason is shown either way."""

    ok: bool
    reason: str


def always_available() -> Availability:
    """The default probe: nothing to look for."""
    return Availability(True, "no special needs")


@dataclass(frozen=True)
class Backend:
    """One implementation of a seam, by name.

    `target` ("pkg.mod:Class") is imported only when a config asks for `name`. `platforms` lets a plugin
    specialise a name for some platforms; an exact match beats a generic one. `probe` must be cheap: files,
    environment, `importlib.util.find_spec`; it never imports torch. `extra` names the extra of the plugin's
    distribution that holds what `target` imports, so that an ImportError can say what to install.
    """

    name: str
    target: str
    summary: str = ""
    platforms: tuple[str, ...] = ()
    priority: int = 0
    probe: Callable[[], Availability] = field(default=always_available)
    extra: str = ""
