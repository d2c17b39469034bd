"""Data keys: files that are named, and chat templates that exist."""

from __future__ import annotations

from collections.abc import Iterator

from roll_core.config.rlvr import RLVRConfig
from roll_core.config.role_sections import DataArgs
from roll_core.data.templates import template_problems
from roll_core.errors import Problem


def problems(config: RLVRConfig) -> Iterator[Problem]:
    """Missing file names, unknown templates, two columns for the prompt."""
    if not config.is_rollout_only:
        yield from _section("actor_train.data_args", config.actor_train.data_args)
    if config.validation is not None:
        yield from _section("validation.data_args", config.validation.data_args)
    training = config.actor_train.data_args
    if training is not None and training.image and config.actor_infer.strategy_name == "sglang":
        rule = "sglang is given no images in this version, and actor_train.data_args.image names some"
        path = "actor_infer.strategy_args.strategy_name"
        yield Problem(path, rule, "sglang", "hf_infer or vllm", is_not_built=True)
    if config.global_template is not None:
        yield from template_problems("global_template", config.global_template)
    for tag, template in config.tag_to_template.items():
        yield from template_problems(f"tag_to_template.{tag}", template)


def _section(path: str, data: DataArgs | None) -> Iterator[Problem]:
    if data is None or not data.file_name:
        hint = "file_name: [data/train.jsonl]"
        yield Problem(f"{path}.file_name", "at least one JSONL file must be named", None, hint)
    if data is None:
        return
    if data.template is not None:
        yield from template_problems(f"{path}.template", data.template)
    if data.messages is not None and data.prompt is not None:
        rule = "names a column for the prompt, and messages names another"
        yield Problem(f"{path}.prompt", rule, data.prompt, "leave one of the two out")
    if data.dataset_type != "json":
        rule = "data files hold one JSON object per line"
        yield Problem(f"{path}.dataset_type", rule, data.dataset_type, "dataset_type: json")
