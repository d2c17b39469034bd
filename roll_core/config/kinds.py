"""Which pipeline a config is for, told by its keys."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence

from roll_core.config.pipeline import BaseConfig
from roll_core.errors import ConfigError, Problem

PIPELINES = {
    "rlvr": "roll_core.config.rlvr:RLVRConfig",
    "agentic": "roll_core.config.agentic:AgenticConfig",
    "dpo": "roll_core.config.offline:DPOConfig",
    "sft": "roll_core.config.offline:SFTConfig",
    "distill": "roll_core.config.offline:DistillConfig",
}
"""Where each schema is. Making its classes takes tens of milliseconds, so only the one that is needed is made."""
AUTO = "auto"

_TELLING_KEYS: tuple[tuple[str, frozenset[str]], ...] = (
    ("agentic", frozenset({"train_env_manager", "val_env_manager", "custom_envs", "reward_normalization"})),
    ("sft", frozenset({"sft_train"})),
    ("distill", frozenset({"student", "student_pretrain", "teacher_pretrain"})),
    ("dpo", frozenset({"chosen_key", "rejected_key", "ipo", "beta", "train_batch_size"})),
    ("rlvr", frozenset({"rewards", "num_return_sequences_in_group"})),
)


def kind_of_config(keys: Sequence[str], asked: str = AUTO) -> str:
    """The pipeline of a config with these top-level keys: the one asked for, else the one whose keys it has.

    Raises:
        ConfigError: no pipeline has the name asked for.
    """
    if asked != AUTO:
        if asked not in PIPELINES:
            close = difflib.get_close_matches(asked, PIPELINES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"one of: {', '.join(PIPELINES)}"
            raise ConfigError([Problem("", f"no pipeline named '{asked}'", None, hint)])
        return asked
    present = set(keys)
    for kind, telling in _TELLING_KEYS:
        if kind in PIPELINES and present & telling:
            return kind
    return "rlvr"


def hint_for_foreign_key(key: str, kind: str) -> str:
    """What to say of a top-level key that `kind` does not have and other pipelines do; empty where none has it."""
    owners = [name for name in PIPELINES if name != kind and key in model_of(name).model_fields]
    return f"it is a key of {' and '.join(owners)} configs, and this is read as one of {kind}" if owners else ""


def model_of(kind: str) -> type[BaseConfig]:
    """The schema of a pipeline."""
    module, _, name = PIPELINES[kind].partition(":")
    found: type[BaseConfig] = getattr(importlib.import_module(module), name)
    return found
