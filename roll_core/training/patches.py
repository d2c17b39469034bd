"""Changes to a model's modules that a config asks for by key and plugins bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roll_core.errors import PluginError
from roll_core.training.base import ModelPatch

if TYPE_CHECKING:
    import torch

    from roll_core.platforms import Platform
    from roll_core.training.fsdp2_config import Fsdp2Config


def requested_patches(config: Fsdp2Config) -> dict[str, Mapping[str, Any]]:
    """The patches a config asks for, by name, each with its options."""
    asked: dict[str, Mapping[str, Any]] = {}
    if config.apply_expert_patch:
        asked["expert_patch"] = {}
    if config.apply_tiled_mlp:
        asked["tiled_mlp"] = {"num_shards": config.tiled_num_shards, "model_type": config.model_type}
    return asked


def apply_patches(model: Any, config: Fsdp2Config, platform: Platform) -> None:
    """Apply what the config asks for, before the model is sharded.

    Raises:
        PluginError: no plugin brings a patch of that name, or it does not fit this model.
    """
    for name, options in requested_patches(config).items():
        patch = find_patch(name, platform)
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


def find_patch(name: str, platform: Platform) -> ModelPatch:
    """The patch of that name for this platform.

    Raises:
        PluginError: no plugin brings it.
    """
    from roll_core.plugins import load_plugins
    from roll_core.resolve import resolve_backend

    resolved = resolve_backend(load_plugins(), "patch", name, platform.name)
    patch = resolved.load()()
    assert isinstance(patch, ModelPatch)
    return patch
