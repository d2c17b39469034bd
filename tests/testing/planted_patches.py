"""Model patches that do one thing wrong."""

from types import MethodType
from typing import Any

import torch
from roll_demo.patch import DemoPatch

from roll_core import Availability
from roll_core.testing.patch_contract import PatchContract
from tests.testing.planted_registry import planted

SAME = "test_outputs_and_gradients_are_those_of_the_plain_model"


def change_mlps(model: Any, forward: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.forward = MethodType(forward, layer.mlp)


@planted("outputs that differ", PatchContract, SAME)
class Scales(DemoPatch):
    def apply(self, model: Any, options: Any) -> None:
        change_mlps(model, lambda mlp, hidden: type(mlp).forward(mlp, hidden) * 1.5)


@planted("gradients that are lost", PatchContract, SAME)
class Detaches(DemoPatch):
    def apply(self, model: Any, options: Any) -> None:
        change_mlps(model, lambda mlp, hidden: type(mlp).forward(mlp, hidden).detach())


@planted("weights under other names", PatchContract, "test_weights_keep_the_names_and_values_of_the_folder")
class Wraps(DemoPatch):
    def apply(self, model: Any, options: Any) -> None:
        for layer in model.model.layers:
            layer.mlp = torch.nn.Sequential(layer.mlp)


@planted("the class of every model changed", PatchContract, "test_no_other_model_is_changed")
class ChangesTheClass(DemoPatch):
    def apply(self, model: Any, options: Any) -> None:
        kind = type(model.model.layers[0].mlp)
        plain = kind.forward
        kind.forward = lambda self, hidden: plain(self, hidden)


@planted("a model that does not fit accepted", PatchContract, "test_it_refuses_a_model_it_does_not_know")
class AcceptsAll(DemoPatch):
    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        return Availability(True, "it fits")


@planted("a refusal without a reason", PatchContract, "test_whether_it_fits_has_a_reason_either_way")
class NoReason(DemoPatch):
    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        return Availability(super().applies(model_config, transformers_version).ok, "")


@planted("a config changed by the question", PatchContract, "test_whether_it_fits_has_a_reason_either_way")
class ChangesConfig(DemoPatch):
    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        model_config.use_cache = False
        return super().applies(model_config, transformers_version)


@planted("no model that it fits", PatchContract, "test_it_fits_some_model")
class FitsNothing(DemoPatch):
    def applies(self, model_config: Any, transformers_version: str) -> Availability:
        return Availability(False, "not on a Sunday")


@planted("a second time that adds to the first", PatchContract, "test_a_second_time_changes_nothing_more")
class AddsUp(DemoPatch):
    def apply(self, model: Any, options: Any) -> None:
        seen = getattr(model, "times_patched", 0)
        model.times_patched = seen + 1
        change_mlps(model, lambda mlp, hidden: type(mlp).forward(mlp, hidden) * (1 + seen))
