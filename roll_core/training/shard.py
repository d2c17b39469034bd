"""Splitting a model over ranks with FSDP2: which modules become units, in what precision, and how they are filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from roll_core.errors import ConfigError, Problem
from roll_core.training.fsdp2_config import Fsdp2Config, WrapPolicy
from roll_core.training.model import is_tied
from roll_core.training.model_args import dtype_of

_PATH = "strategy_args.strategy_config.wrap_policy"


def shard(model: nn.Module, mesh: DeviceMesh, config: Fsdp2Config, compute_dtype: torch.dtype) -> None:
    """Split the model in place. Gradients are summed over ranks, never averaged.

    Losses arrive divided by the normaliser of the whole mini-batch, so their gradients only need adding up.

    Raises:
        ConfigError: the wrap policy names a class that the model doesn't have.
    """
    options: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": config.reshard_after_forward,
        "mp_policy": MixedPrecisionPolicy(compute_dtype, dtype_of(config.reduce_dtype), cast_forward_inputs=False),
        # Pinned memory speeds up copies to a device, and cannot be had where there is none.
        "offload_policy": CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
        if config.offload_policy
        else OffloadPolicy(),
    }
    for module in units(model, config.wrap_policy):
        fully_shard(module, **options)
    fully_shard(model, **options)
    for unit in sharded_units(model):
        # A factor of 1 alone would ask for a scaled sum, which not every collective backend has.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    if has_separate_experts(model) and not config.apply_expert_patch:
        _expect_unused_experts(model)


def has_separate_experts(model: nn.Module) -> bool:
    """Whether each expert is a module of its own, which a rank runs only where its tokens are routed to it."""
    return any(
        name.endswith(".experts") and isinstance(module, nn.ModuleList) for name, module in model.named_modules()
    )


def _expect_unused_experts(model: nn.Module) -> None:
    """Let an expert without tokens on a rank count as a gradient of zero: ranks must sum the same tensors."""
    for unit in sharded_units(model):
        if not hasattr(unit, "set_reduce_scatter_unused_params"):
            rule = f"{type(model).__name__} runs each expert only where it has tokens, which torch {torch.__version__}"
            rule += " cannot sum over ranks; the patch runs all of them"
            raise ConfigError([Problem("strategy_args.strategy_config.apply_expert_patch", rule, False, "true")])
        unit.set_reduce_scatter_unused_params(True, recurse=False)


def sharded_units(model: nn.Module) -> Iterator[FSDPModule]:
    """Every unit, the root included."""
    return (module for module in model.modules() if isinstance(module, FSDPModule))


def units(model: nn.Module, policy: WrapPolicy) -> list[nn.Module]:
    """The modules to split one by one, inner ones first: embeddings, experts, layers, output projection."""
    chosen: list[nn.Module] = []
    if policy.wrap_embeddings:
        chosen.append(_untied(model, "wrap_embeddings", "get_input_embeddings"))
    chosen += _of_classes(model, policy.moe_experts, "moe_experts")
    layers = policy.transformer_layer_cls_to_wrap
    if layers is None:
        layers = sorted(getattr(model, "_no_split_modules", None) or [])
        if not layers:
            rule = f"{type(model).__name__} does not say what its layers are"
            raise ConfigError([Problem(f"{_PATH}.transformer_layer_cls_to_wrap", rule, hint="name their classes")])
        # A family's list also names layers that this member of it may lack.
        present = {type(module).__name__ for module in model.modules()}
        layers = [name for name in layers if name in present]
    found = _of_classes(model, layers, "transformer_layer_cls_to_wrap")
    # A class and a class inside it may both be named: only the innermost is split, or its parent would be empty.
    chosen += [module for module in found if not any(other in set(module.modules()) - {module} for other in found)]
    if policy.wrap_lm_output:
        chosen.append(_untied(model, "wrap_lm_output", "get_output_embeddings"))
    return list(dict.fromkeys(chosen))


def _of_classes(model: nn.Module, names: list[str], key: str) -> list[nn.Module]:
    found = [module for module in model.modules() if type(module).__name__ in names]
    missing = sorted(set(names) - {type(module).__name__ for module in found})
    if missing:
        present = ", ".join(sorted({type(module).__name__ for module in model.modules()}))
        raise ConfigError([Problem(f"{_PATH}.{key}", f"the model has no {missing[0]}", names, f"one of: {present}")])
    return found


def _untied(model: Any, key: str, getter: str) -> nn.Module:
    module = getattr(model, getter)()
    if not isinstance(module, nn.Module):
        raise ConfigError([Problem(f"{_PATH}.{key}", f"{type(model).__name__} has no such module", True)])
    if is_tied(model):
        rule = "the model's input and output embeddings are one tensor and must stay in one unit"
        raise ConfigError([Problem(f"{_PATH}.{key}", rule, True, f"{key}: false")])
    return module


@torch.no_grad()
def fill(model: nn.Module, full: Mapping[str, torch.Tensor], device: torch.device, offloaded: bool) -> None:
    """Give every rank its part of the weights that only rank 0 has; `full` is empty elsewhere."""
    home = torch.device("cpu") if offloaded else device
    if dist.get_rank() > 0:
        model.to_empty(device=home)
        for buffer_name, buffer in list(model.named_buffers()):
            _replace_buffer(model, buffer_name, buffer.to(device))
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        whole = full[name].to(device) if full else torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        part = distribute_tensor(whole.contiguous(), parameter.device_mesh, parameter.placements)
        parameter.to_local().copy_(part.to_local())
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def _replace_buffer(model: nn.Module, name: str, value: torch.Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    model.get_submodule(owner)._buffers[leaf] = value


@torch.no_grad()
def reshard(model: nn.Module) -> None:
    """Free every gathered weight, so that the next forward gathers the current ones."""
    for unit in sharded_units(model):
        unit.reshard()
