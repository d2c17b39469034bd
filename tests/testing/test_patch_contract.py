"""A patch that rearranges a computation keeps the contract of patches."""

from collections.abc import Mapping
from types import MethodType
from typing import Any, ClassVar

import torch

from roll_core import Availability
from roll_core.testing.patch_contract import PatchContract
from roll_core.training import ModelPatch


class HalvedMlp(ModelPatch):
    """Each half of the rows goes through the layers alone."""

    name: ClassVar[str] = "halved_mlp"

    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        kind = model_config.model_type
        return Availability(kind in ("llama", "qwen3"), f"model_type is '{kind}', llama and qwen3 are known")

    def apply(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        for layer in model.model.layers:
            layer.mlp.forward = MethodType(_halved, layer.mlp)


def _halved(mlp: Any, states: torch.Tensor) -> torch.Tensor:
    return torch.cat([type(mlp).forward(mlp, part) for part in states.chunk(2, dim=1)], dim=1)


class TestHalvedMlp(PatchContract):
    patch_class = HalvedMlp
