"""Configs that generate and score, and train nothing: what they need, and which of their keys do nothing then."""

from __future__ import annotations

import math
from collections.abc import Iterator

from roll_core.config.agentic import AgenticConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.errors import Problem

_TRAINING = (
    "actor_train",
    "critic",
    "reference",
    "teacher",
    "student_train",
    "adv_estimator",
    "reward_normalization",
    "norm_mean_type",
    "norm_std_type",
    "whiten_rewards",
    "whiten_advantages",
    "advantage_clip",
    "reward_clip",
    "gamma",
    "lambd",
    "ppo_epochs",
    "max_grad_norm",
    "pg_clip",
    "use_pg_clip_range",
    "pg_clip_low",
    "pg_clip_high",
    "dual_clip_loss",
    "value_clip",
    "loss_agg_mode",
    "entropy_loss_coef",
    "rl_loss_coef",
    "importance_sampling",
    "use_kl_loss",
    "kl_loss_coef",
    "kl_penalty",
    "init_kl_coef",
    "target_kl",
    "kl_horizon",
    "add_token_level_kl",
    "enable_reference",
    "enable_old_logprobs_recompute",
    "force_disable_old_logprobs_recompute",
    "train_infer_correction",
    "critic_warmup",
    "async_generation_ratio",
    "model_update_buffer_size_mb",
    "transfer_backend",
    "save_steps",
    "max_ckpt_to_keep",
    "checkpoint_config",
    "eval_steps",
    "val_env_manager",
)
"""Keys that say how to train, to validate in between, and to save what was trained."""


def problems(config: RLVRConfig | AgenticConfig) -> Iterator[Problem]:
    """What keeps a rollout from beginning, from ending, or from being worth anything."""
    if "actor_infer" not in config.model_fields_set:
        yield Problem("actor_infer", "must be given: it generates", None, "a section actor_infer with strategy_args")
    if config.actor_infer.strategy_config.get("load_format") == "dummy":
        path = "actor_infer.strategy_args.strategy_config.load_format"
        rule = "must not be dummy where nothing is trained: no weights would ever come"
        yield Problem(path, rule, "dummy", "load_format: auto, which loads the model's folder")
    if isinstance(config.resume_from_checkpoint, str):
        rule = "must be true or false where nothing is trained: a rollout goes on from the files it has written"
        yield Problem("resume_from_checkpoint", rule, config.resume_from_checkpoint, "true")
    if config.max_steps == 0:
        yield Problem("max_steps", "must be at least 1, or -1 for all there is", 0)
    yield from _prompts(config) if isinstance(config, RLVRConfig) else _episodes(config)


def notices(config: RLVRConfig | AgenticConfig) -> Iterator[str]:
    """That nothing is trained, and the keys that were written and do nothing because of that."""
    yield "nothing is trained: answers are generated with the weights in actor_infer's folder, scored and written"
    if isinstance(config, AgenticConfig) and config.train_env_manager.pace == "free":
        yield "train_env_manager.pace: has no effect where nothing is trained; a killed run must play the same again"
    silent = [key for key in _TRAINING if key in config.model_fields_set]
    if silent:
        yield f"{', '.join(silent)}: {'has' if len(silent) == 1 else 'have'} no effect where nothing is trained"


def _prompts(config: RLVRConfig) -> Iterator[Problem]:
    if config.validation is None:
        hint = "a section validation with data_args.file_name; or a section actor_train, to train"
        yield Problem("validation", "must be given where nothing is trained: its prompts are answered", None, hint)
        return
    sampling = config.validation.generating_args
    number = sampling.num_return_sequences if sampling is not None else 1
    if sampling is not None and number and number > 1 and (sampling.temperature == 0 or not sampling.do_sample):
        rule = f"all {number} answers to a prompt would be the same"
        yield Problem("validation.generating_args.num_return_sequences", rule, number, "1, or temperature: 1.0")


def _episodes(config: AgenticConfig) -> Iterator[Problem]:
    if config.max_steps < 0 and config.train_env_manager.max_traj_per_env < 1:
        rule = "must be given with max_steps -1: environments play as long as they are asked to"
        yield Problem("train_env_manager.max_traj_per_env", rule, config.train_env_manager.max_traj_per_env, "1")
    sampling = config.actor_infer.generating_args
    if config.train_env_manager.group_size > 1 and sampling is not None and math.isclose(sampling.temperature, 0.0):
        rule = "all episodes of a group would be the same"
        yield Problem("actor_infer.generating_args.temperature", rule, sampling.temperature, "temperature: 1.0")
