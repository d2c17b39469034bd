"""Which pipeline a config is for, told by its keys."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from roll_core.config.agentic import AgenticConfig
from roll_core.config.offline import DistillConfig, DPOConfig, SFTConfig
from roll_core.config.pipeline import BaseConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.errors import ConfigError, Problem

PIPELINES: dict[str, type[BaseConfig]] = {
    "rlvr": RLVRConfig,
    "agentic": AgenticConfig,
    "dpo": DPOConfig,
    "sft": SFTConfig,
    "distill": DistillConfig,
}
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


def model_of(kind: str) -> type[BaseConfig]:
    """The schema of a pipeline."""
    return PIPELINES[kind]
