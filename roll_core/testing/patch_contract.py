"""What every model patch must keep, as tests to run on yours.

    class TestMyPatch(PatchContract):
        patch_class = MyPatch

It is tried on tiny models of several families; at least one of them must fit. For others, override `models`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest
import torch

from roll_core.backend import Availability
from roll_core.errors import RollError
from roll_core.testing import tiny
from roll_core.testing.contract import Contract, listed
from roll_core.training import ModelPatch
from roll_core.training.model import under_checkpoint_names

Models = Mapping[str, Callable[[], Any]]


class PatchContract(Contract):
    """A patched model computes what the plain one does, and a model that does not fit is refused."""

    patch_class: ClassVar[type[ModelPatch]]
    options: ClassVar[Mapping[str, Any]] = {}
    tolerance: ClassVar[float] = 1e-5
    """Largest difference of an output, and of a gradient as a share of the largest one."""

    @classmethod
    def models(cls) -> Models:
        """Makers of random models, by name; the same weights each time."""
        return {family: partial(tiny.make_model, family) for family in tiny.FAMILIES}

    def patch(self) -> ModelPatch:
        """A new instance, as a run makes it."""
        return type(self).patch_class()

    @pytest.fixture(scope="class")
    @classmethod
    def fitting(cls) -> dict[str, Any]:
        """A model of each family that the patch fits."""
        made = {name: make() for name, make in cls.models().items()}
        return {name: model for name, model in made.items() if _fits(cls.patch_class(), model.config).ok}

    def test_it_fits_some_model(self, fitting: dict[str, Any]) -> None:
        reasons = "; ".join(_fits(self.patch(), make().config).reason for make in self.models().values())
        assert fitting, f"{type(self).patch_class.__name__} fits none of {listed(self.models())}: {reasons}"

    def test_it_has_the_name_it_is_offered_by(self) -> None:
        name = type(self).patch_class.name
        assert name == (self.backend or name), f"offered as '{self.backend}', its name is '{name}'"

    def test_whether_it_fits_has_a_reason_either_way(self) -> None:
        for name, make in self.models().items():
            config = make().config
            before = copy.deepcopy(config.to_dict())
            answer = _fits(self.patch(), config)
            assert isinstance(answer, Availability), f"applies() on {name} is a {type(answer).__name__}"
            assert answer.reason.strip(), f"applies() on {name} gives no reason"
            assert config.to_dict() == before, f"applies() changed the config of {name}; it only answers"

    def test_it_refuses_a_model_it_does_not_know(self) -> None:
        from transformers import PretrainedConfig

        answer = _fits(self.patch(), PretrainedConfig(architectures=["NobodyForCausalLM"]))
        assert not answer.ok, f"applies() accepts a model of no known kind: {answer.reason}"
        assert answer.reason.strip(), "applies() refuses a model without a reason"

    @pytest.mark.parametrize("mode", ["eval", "train", "recomputed activations"])
    def test_outputs_and_gradients_are_those_of_the_plain_model(self, fitting: dict[str, Any], mode: str) -> None:
        for name in fitting:
            plain, patched = self._pair(name)
            for model in (plain, patched):
                model.train(mode != "eval")
                if mode == "recomputed activations":
                    model.gradient_checkpointing_enable({"use_reentrant": False})
            results = [_forward_and_backward(model) for model in (plain, patched)]
            furthest = float((results[0][0] - results[1][0]).abs().max())
            assert furthest <= self.tolerance, f"logits of a patched {name} ({mode}) differ by {furthest:.2g}"
            self._compare_gradients(f"{name} ({mode})", results[0][1], results[1][1])

    def test_weights_keep_the_names_and_values_of_the_folder(self, fitting: dict[str, Any]) -> None:
        for name in fitting:
            plain, patched = (_in_folder(model, model.state_dict()) for model in self._pair(name))
            changed = sorted(plain.keys() ^ patched.keys())
            assert not changed, f"a patched {name} has other weights in its folder: {listed(changed)}"
            other = [key for key, tensor in plain.items() if not torch.equal(tensor, patched[key])]
            assert not other, f"a patched {name} has other values in {listed(other)}"

    def test_no_other_model_is_changed(self, fitting: dict[str, Any]) -> None:
        for name in fitting:
            bystander = self.models()[name]()
            before = _code(bystander)
            self._pair(name)
            changed = [module for module, code in _code(bystander).items() if before[module] != code]
            assert not changed, f"patching one {name} changed the class of every other: {listed(changed)}"

    def test_a_second_time_changes_nothing_more(self, fitting: dict[str, Any]) -> None:
        for name in fitting:
            plain, patched = self._pair(name)
            try:
                self.patch().apply(patched, self.options)
            except (RollError, ValueError, RuntimeError):
                continue
            furthest = float((_forward_and_backward(plain)[0] - _forward_and_backward(patched)[0]).abs().max())
            assert furthest <= self.tolerance, f"a {name} that was patched twice differs by {furthest:.2g}"

    def _pair(self, name: str) -> tuple[Any, Any]:
        plain, patched = self.models()[name](), self.models()[name]()
        self.patch().apply(patched, self.options)
        return plain, patched

    def _compare_gradients(self, title: str, plain: Mapping[str, Any], patched: Mapping[str, Any]) -> None:
        without = sorted(plain.keys() - patched.keys())
        assert not without, f"in a patched {title} these get no gradient: {listed(without)}"
        for key, gradient in patched.items():
            # What the plain model leaves without a gradient, such as an expert nobody chose, may get one of zeros.
            expected = plain.get(key, torch.zeros_like(gradient))
            furthest = float((gradient - expected).abs().max()) / max(1.0, float(expected.abs().max()))
            assert furthest <= self.tolerance, f"the gradient of {key} in a patched {title} differs by {furthest:.2g}"


def _fits(patch: ModelPatch, config: Any) -> Availability:
    import transformers

    return patch.applies(config, transformers.__version__)


def _forward_and_backward(model: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    tokens = torch.randint(0, tiny.VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(5))
    logits = model(tokens).logits
    model.zero_grad()
    logits.log_softmax(-1).gather(2, tokens[..., None]).mean().backward()
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    return logits.detach(), _in_folder(model, gradients)


def _in_folder(model: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors under the names that they have in a model's folder: transformers fuses experts in memory."""
    return {
        name: part.clone()
        for own, tensor in tensors.items()
        for name, part in under_checkpoint_names(model, own, tensor)
    }


def _code(model: torch.nn.Module) -> dict[str, Any]:
    """The forward that each module would run, and its class."""
    return {name: (type(module), getattr(module.forward, "__func__", None)) for name, module in model.named_modules()}
