"""Keys that the schema knows, that change nothing in this version, and that a user should hear about who wrote them.

Keys that ask for something a run would lack without them are refused instead: `roll_core.config.unavailable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roll_core.config.judges import judge_engine, judge_engines
from roll_core.config.reward_options import OPTION_KEYS, READ_KEYS, reward_name
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.role_sections import DataArgs
from roll_core.config.roles import RewardConfig, WorkerConfig
from roll_core.config.section import Section

_ADAPTER = "there is no adapter without lora_target"
_PROFILES = "profiles are not part of this version"
_OWN_OPTIONS = "what a reward of your own needs stands in reward_args"
_PRECISION = "precision is chosen by model_args.dtype and the strategy's own options"

PIPELINE = {
    "val_batch_size": "validation answers every held-out prompt",
    "router_args": "there is one router, which deals prompts to engines in turn",
    "profiler_output_dir": _PROFILES,
    "length_profiler_dir": _PROFILES,
    "otlp_output_dir": "no traces are written",
    "is_num_return_sequences_expand": "each response is a request of its own",
    "pipeline_cls": "the kind of a config is told by its keys",
    "opsd_solution_key": "distillation is not part of this version",
    "opsd_max_solution_length": "distillation is not part of this version",
    "pure_opd_pipeline_type": "distillation is not part of this version",
}
ROLE = {
    "max_concurrency": "workers answer as many calls at once as they need",
    "sequence_packing_args": "rows are sorted by length and cut by tokens instead of packed",
    "logits_in_fp32": "log-probabilities are always computed in fp32",
}
MODEL = {
    "device_map": "devices are those of device_mapping",
    "lora_rank": _ADAPTER,
    "lora_alpha": _ADAPTER,
    "lora_dropout": _ADAPTER,
    "additional_target": _ADAPTER,
    "autocast_adapter_dtype": _ADAPTER,
}
TRAINING = {
    "data_seed": "prompts are drawn by the config's seed",
    "dataloader_num_workers": "prompts are tokenised once, before the first step",
    "per_device_eval_batch_size": "rows are scored infer_batch_size at once",
    "save_hf_model": "every checkpoint holds the model as a folder that transformers reads",
    "fp16": _PRECISION,
    "bf16": _PRECISION,
}
DATA = {
    "preprocessing_num_workers": "prompts are tokenised by one process",
    "response": "answers of data files are not read; what is graded against is ground_truth",
    "video_max_pixels": "rows have no videos",
    "video_min_pixels": "rows have no videos",
    "video_fps": "rows have no videos",
    "video_maxlen": "rows have no videos",
}
IMAGES = {
    "image_max_pixels": "data_args.image names no column of images",
    "image_min_pixels": "data_args.image names no column of images",
}
SAMPLING = {
    "max_length": "responses end at max_new_tokens",
    "logprobs": "the log-probabilities of sampled tokens are always kept",
}
REWARD = {
    "code_url": "programs run in the sandbox of this machine",
} | {
    key: _OWN_OPTIONS
    for key in (
        "judge_prompt",
        "judge_model_type",
        "judge_model_name",
        "judge_api_url",
        "judge_api_key",
        "format_pattern",
        "reward_type",
    )
}
SERVER = {key: "the judge is an engine of this run" for key in ("judge_api_url", "judge_api_key")}
VARIANT_PREFIXES = ("tis_", "topr_", "cispo_", "kimi15_")
"""How the constants of a policy loss begin that has some of its own."""
CHECKPOINT = {"keep_local_file": "checkpoints stay where they are written"}


def notices(config: RLVRConfig) -> Iterator[str]:
    """One sentence for each such key that was written with another value than its default."""
    yield from _written(config, "", PIPELINE)
    yield from _written(config.checkpoint_config, "checkpoint_config", CHECKPOINT)
    yield from _policy_loss(config)
    if "max_additional_running_prompts" in config.model_fields_set and not config.is_use_additional_prompts:
        yield "max_additional_running_prompts: has no effect without is_use_additional_prompts: true"
    for path, role in config.roles().items():
        yield from _role(config, path, role)
    if config.reward_model is not None and "reward_model" not in judge_engines(config):
        yield "reward_model: has no effect; no reward has judge_model_type: cluster"
    for name, reward in config.rewards.items():
        yield from _reward(name, reward)
        if judge_engine(config, name) is not None:
            yield from _written(reward, f"rewards.{name}", SERVER)


def _role(config: RLVRConfig, path: str, role: WorkerConfig) -> Iterator[str]:
    without = ("max_concurrency",) if isinstance(role, RewardConfig) else ()
    yield from _written(role, path, {key: why for key, why in ROLE.items() if key not in without})
    has_adapter = bool(role.model_args.lora_target)
    of_model = {key: why for key, why in MODEL.items() if not (has_adapter and why == _ADAPTER)}
    yield from _written(role.model_args, f"{path}.model_args", of_model)
    yield from _written(role.training_args, f"{path}.training_args", TRAINING)
    if role.training_args.seed not in (None, config.seed):
        yield f"{path}.training_args.seed: has no effect; the config's seed is that of every role"
    is_judge = path in judge_engines(config)
    if is_judge or path in ("actor_infer", "validation"):
        yield from _written(role.generating_args, f"{path}.generating_args", SAMPLING)
    elif role.generating_args is not None:
        yield f"{path}.generating_args: has no effect; this role does not generate"
    if path in ("actor_train", "validation"):
        yield from _written(role.data_args, f"{path}.data_args", DATA)
        if role.data_args is not None and role.data_args.image is None:
            yield from _written(role.data_args, f"{path}.data_args", IMAGES)
    elif is_judge:
        if role.data_args is not None and role.data_args.model_fields_set - {"template"}:
            yield f"{path}.data_args: has no effect beside template; a judge is asked about the rows of the run"
    elif role.data_args is not None and _says_more(role.data_args, config.actor_train.data_args):
        yield f"{path}.data_args: has no effect; prompts are made as actor_train.data_args and validation.data_args say"


def _policy_loss(config: RLVRConfig) -> Iterator[str]:
    """Constants of a policy loss other than the one that is used, and the one clip that the range replaces."""
    variant = config.actor_train.pg_variant or "ppo"
    for key in sorted(config.actor_train.model_fields_set):
        prefix = next((prefix for prefix in VARIANT_PREFIXES if key.startswith(prefix)), f"{variant}_")
        if prefix != f"{variant}_":
            yield f"actor_train.{key}: has no effect; pg_variant is {variant}"
    if config.use_pg_clip_range and "pg_clip" in config.model_fields_set and not config.dual_clip_loss:
        yield "pg_clip: has no effect; use_pg_clip_range takes pg_clip_low and pg_clip_high"
    filtered = [name for name, reward in config.rewards.items() if reward.query_filter_config.type != "no_filter"]
    if config.num_return_sequences_in_group == 1:
        for name in filtered:
            yield f"rewards.{name}.query_filter_config: has no effect; a group of one answer is always kept"


def _reward(name: str, reward: RewardConfig) -> Iterator[str]:
    """Keys that the reward of this domain does not take, though those of other domains may."""
    builtin = reward_name(name, reward)
    taken = {*OPTION_KEYS.get(builtin, ()), *READ_KEYS.get(builtin, ())}
    yield from _written(reward, f"rewards.{name}", {key: why for key, why in REWARD.items() if key not in taken})


def _says_more(data: DataArgs, training: DataArgs | None) -> bool:
    """Published configs repeat the template of the training data under actor_infer; that much is fine."""
    template = None if training is None else training.template
    return bool(data.model_fields_set - {"template"}) or data.template != template


def _written(section: Section | None, path: str, reasons: Mapping[str, str]) -> Iterator[str]:
    if section is None:
        return
    for key, reason in reasons.items():
        if key in section.model_fields_set and getattr(section, key) != type(section).model_fields[key].default:
            yield f"{path}.{key}: has no effect; {reason}" if path else f"{key}: has no effect; {reason}"
