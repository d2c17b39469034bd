"""Loading a role's model from a local folder, before it is sharded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from roll_core.errors import ConfigError, Problem
from roll_core.training.model_args import attention_of, is_critic
from roll_core.training.vision import SIDES, language_model_class, reads_images

if TYPE_CHECKING:
    from roll_core.config.schema import WorkerConfig
    from roll_core.platforms import Platform


def read_config(role: WorkerConfig, platform: Platform) -> Any:
    """The model's transformers configuration, with the role's changes to it.

    Raises:
        ConfigError: no such folder, or a changed key that the model does not have.
    """
    from transformers import AutoConfig

    folder = Path(role.model_args.model_name_or_path or "")
    if not (folder / "config.json").is_file():
        rule = "must be a local folder with a model in Hugging Face format; it has no config.json"
        raise ConfigError([Problem("model_args.model_name_or_path", rule, role.model_args.model_name_or_path)])
    config = AutoConfig.from_pretrained(folder)
    changes = dict(role.model_args.model_config_kwargs or {})
    unknown = [name for name in changes if not hasattr(config, name)]
    if unknown:
        rule = f"{type(config).__name__} has no key '{unknown[0]}'"
        raise ConfigError([Problem("model_args.model_config_kwargs", rule, changes)])
    if is_critic(role) and reads_images(config):
        rule = "critics read text alone, and the model reads images too"
        hint = "a critic's folder of a language model, or an adv_estimator without critic, such as grpo"
        raise ConfigError([Problem("model_args.model_name_or_path", rule, role.model_args.model_name_or_path, hint)])
    if is_critic(role):
        # transformers puts a dropout of 0.1 in front of the head where the configuration names none, and a
        # value that changes from one reading to the next is no baseline.
        changes |= {"num_labels": 1, "classifier_dropout": 0.0}
    for name, value in changes.items():
        setattr(config, name, value)
    config._attn_implementation = attention_of(role, platform)
    return config


def load(role: WorkerConfig, config: Any, dtype: torch.dtype) -> nn.Module:
    """The model with its weights, on the host. A critic's head, which no folder has, starts random."""
    from transformers.utils import logging

    # A bar per tensor file in each worker's log says nothing that the log's own lines do not.
    logging.disable_progress_bar()
    folder = role.model_args.model_name_or_path
    model = _auto_class(role, config).from_pretrained(
        folder, config=config, dtype=dtype, attn_implementation=config._attn_implementation
    )
    assert isinstance(model, nn.Module)
    return model


def outline(role: WorkerConfig, config: Any, dtype: torch.dtype) -> nn.Module:
    """The model's modules without any memory for weights."""
    with torch.device("meta"):
        model = _auto_class(role, config).from_config(
            config, dtype=dtype, attn_implementation=config._attn_implementation
        )
    assert isinstance(model, nn.Module)
    return model


def _auto_class(role: WorkerConfig, config: Any) -> Any:
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification if is_critic(role) else language_model_class(config)


def freeze(model: Any, prefixes: str | None) -> None:
    """Exclude parameters from training by the comma-separated beginnings of their names.

    Of a model that reads images, `vision_model` and `language_model` are the sides.

    Raises:
        ConfigError: a beginning that no parameter has.
    """
    for prefix in filter(None, (part.strip() for part in (prefixes or "").split(","))):
        begin = SIDES.get(prefix, prefix) if reads_images(model.config) else prefix
        named = [parameter for name, parameter in model.named_parameters() if name.startswith(begin)]
        if not named:
            rule = f"no parameter begins with '{prefix}'"
            raise ConfigError([Problem("model_args.freeze_module_prefix", rule, prefixes)])
        for parameter in named:
            parameter.requires_grad_(False)


def is_tied(model: nn.Module) -> bool:
    """Whether two modules share a parameter."""
    return len(list(model.named_parameters())) < len(list(model.named_parameters(remove_duplicate=False)))


def recompute_activations(model: Any, use_reentrant: bool | None) -> None:
    """Gradient checkpointing: backward computes each layer's activations again instead of keeping them."""
    # Only the form without re-entrance recomputes under the hooks that gather a sharded layer's weights.
    options = {"use_reentrant": bool(use_reentrant)}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def under_checkpoint_names(model: Any, name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """One of the model's tensors as the model's folder has it: transformers 5 fuses a layer's experts in memory."""
    conversions = _conversions(model)
    if not conversions:
        yield name, tensor
        return
    from transformers.core_model_loading import revert_weight_conversion

    yield from revert_weight_conversion(model, {name: tensor}).items()


def _conversions(model: Any) -> list[Any]:
    known = getattr(model, "_weight_conversions", None)
    if known is None:
        try:
            from transformers.conversion_mapping import get_model_conversion_mapping
        except ImportError:  # before transformers 5 the names in memory and in the folder are the same
            known = []
        else:
            known = get_model_conversion_mapping(model, add_legacy=False)
        model._weight_conversions = known
    return list(known)
