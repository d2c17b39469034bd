"""Steps, schedules and outputs, for every pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from roll_core.config.agentic import AgenticConfig
from roll_core.config.pipeline import BaseConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.errors import Problem

SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "warmup_stable_decay",
)
"""Learning-rate schedules of transformers that need nothing but the number of steps."""


def problems(config: BaseConfig) -> Iterator[Problem]:
    """Counts of steps, names of schedules, kinds of checkpoints."""
    if isinstance(config, RLVRConfig | AgenticConfig) and config.max_steps < 1 and not config.is_rollout_only:
        yield Problem("max_steps", "must be at least 1", config.max_steps)
    if config.checkpoint_config is not None and config.checkpoint_config.type != "file_system":
        rule = "checkpoints are written to a folder"
        yield Problem("checkpoint_config.type", rule, config.checkpoint_config.type, "type: file_system")
    for name, role in config.roles().items():
        schedule = role.training_args.lr_scheduler_type
        if schedule not in SCHEDULES:
            close = difflib.get_close_matches(schedule, SCHEDULES, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"one of: {', '.join(SCHEDULES)}"
            path = f"{name}.training_args.lr_scheduler_type"
            yield Problem(path, "no learning-rate schedule has this name", schedule, hint)


def notices(config: BaseConfig) -> Iterator[str]:
    """Keys that a run's own counting makes useless."""
    if not isinstance(config, RLVRConfig):
        return
    if config.validation is None and "eval_steps" in config.model_fields_set and config.eval_steps > 0:
        yield "eval_steps: has no effect without a section validation"
    for name, role in config.roles().items():
        for key in ("num_train_epochs", "max_steps"):
            if key in role.training_args.model_fields_set:
                yield f"{name}.training_args.{key}: has no effect; max_steps counts the steps of the pipeline"
    if config.checkpoint_config is not None and config.checkpoint_config.async_upload:
        yield "checkpoint_config.async_upload: has no effect; a checkpoint is whole when its step ends"
