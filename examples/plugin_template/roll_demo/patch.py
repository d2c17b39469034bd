"""A model patch: each MLP runs on one half of the positions after the other, which halves its activations."""

from collections.abc import Mapping
from types import MethodType
from typing import Any, ClassVar

import torch

from roll_core import Availability
from roll_core.training import ModelPatch

KNOWN = ("llama", "qwen3")


class DemoPatch(ModelPatch):
    """For models whose MLP treats every position alike."""

    name: ClassVar[str] = "demo_halves"

    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        """Only the model types it was tried on."""
        found = model_config.model_type
        return Availability(found in KNOWN, f"the model's type is '{found}'; known: {', '.join(KNOWN)}")

    def apply(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        """Change each MLP of this model; the class, which other models share, stays as it is."""
        for name, module in model.named_modules():
            if name.endswith(".mlp"):
                module.forward = MethodType(_in_halves, module)


def _in_halves(mlp: Any, hidden_BLH: torch.Tensor) -> torch.Tensor:
    return torch.cat([type(mlp).forward(mlp, half) for half in hidden_BLH.chunk(2, dim=1)], dim=1)
