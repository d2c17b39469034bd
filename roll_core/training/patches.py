"""Changes to a model's modules that a config asks for by key and plugins bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roll_core.errors import PluginError, Problem
from roll_core.training.base import ModelPatch

if TYPE_CHECKING:
    import torch

    from roll_core.platforms import Platform
    from roll_core.resolve import Resolved
    from roll_core.training.fsdp2_config import Fsdp2Config


def requested_patches(config: Fsdp2Config) -> dict[str, Mapping[str, Any]]:
    """The patches that `apply_<name>: true` asks for, by name, each with its options."""
    asked: dict[str, Mapping[str, Any]] = {}
    if config.apply_expert_patch:
        asked["expert_patch"] = {}
    if config.apply_tiled_mlp:
        asked["tiled_mlp"] = {"num_shards": config.tiled_num_shards, "model_type": config.model_type}
    return asked


def patch_problems(config: Fsdp2Config, platform: Platform) -> Iterator[Problem]:
    """The patches that no plugin brings. Whether one fits the model shows when the model is loaded."""
    keys = {"expert_patch": "apply_expert_patch", "tiled_mlp": "apply_tiled_mlp"}
    for name in requested_patches(config):
        try:
            _resolve(name, platform)
        except PluginError as error:
            yield Problem(f"strategy_args.strategy_config.{keys[name]}", str(error).replace("\n", "\n  "), True)


def apply_patches(model: torch.nn.Module, config: Fsdp2Config, platform: Platform) -> None:
    """Apply what the config asks for, before the model is sharded.

    Raises:
        PluginError: no plugin brings a patch of that name, or it does not fit this model.
    """
    for name, options in requested_patches(config).items():
        patch = _resolve(name, platform).load()()
        assert isinstance(patch, ModelPatch)
        apply_patch(model, patch, options)


def apply_patch(model: torch.nn.Module, patch: ModelPatch, options: Mapping[str, Any]) -> None:
    """Apply one patch.

    Raises:
        PluginError: the patch does not fit this model.
    """
    import transformers

    fits = patch.applies(model.config, transformers.__version__)
    if not fits.ok:
        raise PluginError(f"model patch '{patch.name}' does not fit {type(model).__name__}: {fits.reason}")
    patch.apply(model, options)


def _resolve(name: str, platform: Platform) -> Resolved:
    from roll_core.plugins import load_plugins
    from roll_core.resolve import resolve_backend

    return resolve_backend(load_plugins(), "patch", name, platform.name)
