"""Configs with images: published ones, scaled down, break no rule; and what cannot have images is told beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roll_core.config.compose import read_config
from roll_core.config.rules import problems_of
from roll_core.config.runnable import check_run
from roll_core.config.schema import RLVRConfig
from roll_core.plugins import load_plugins

PUBLISHED = Path(__file__).parent / "published" / "rlvr"
ONE_DEVICE = [f"{role}.device_mapping=[0]" for role in ("actor_train", "actor_infer", "reference")]
PRECISION = [
    f"{role}.model_args.{key}"
    for role in ("actor_train", "actor_infer", "reference")
    for key in ("dtype=fp32", "attn_implementation=auto")
]
STRATEGIES = [
    line
    for role, name in (("actor_train", "fsdp2_train"), ("actor_infer", "hf_infer"), ("reference", "fsdp2_infer"))
    for line in (f"~{role}.strategy_args.strategy_config", f"{role}.strategy_args.strategy_name={name}")
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (folder / "preprocessor_config.json").write_text("{}")
    return folder


def read(name: str, model: Path, *more: str) -> RLVRConfig:
    """A published config with what a small machine needs."""
    rows = model.parent / "rows.jsonl"
    rows.write_text(json.dumps({"id": "1", "tag": "aime", "prompt": "2+3=", "ground_truth": "5"}) + "\n")
    smaller = ["prompt_length=48", "response_length=4", "rollout_batch_size=4", "num_return_sequences_in_group=4"]
    smaller += ["max_steps=2", "save_steps=2", "eval_steps=0", "generate_opt_level=1", "num_gpus_per_node=1"]
    smaller += ["actor_train.training_args.per_device_train_batch_size=4", "platform=cpu"]
    smaller += ["actor_train.training_args.gradient_accumulation_steps=4"]
    places = [f"pretrain={model}", f"actor_train.data_args.file_name=[{rows}]", f"output_dir={model.parent / 'out'}"]
    places += [f"logging_dir={model.parent / 'logs'}", f"checkpoint_config.output_dir={model.parent / 'out'}"]
    places += [f"tracker_kwargs.log_dir={model.parent / 'out'}"]
    overrides = [*smaller, *places, *ONE_DEVICE, *PRECISION, *STRATEGIES, *more]
    reading = read_config(PUBLISHED / f"{name}.yaml", overrides)
    assert [str(problem) for problem in reading.problems] == []
    assert isinstance(reading.config, RLVRConfig)
    return reading.config


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("vision_megatron", ["~rewards.cv_detection"]),
        ("vision_lora", ["~actor_train.model_args.lora_target", "~rewards.math_rule.strategy_args"]),
    ],
)
def test_published_configs_of_models_with_images_break_no_rule_where_this_version_has_what_they_ask(
    model: Path, name: str, more: list[str]
) -> None:
    config = read(name, model, "actor_train.data_args.image=image", *more)
    assert [str(problem) for problem in problems_of(config)] == []
    assert [str(problem) for problem in check_run(config, load_plugins()).problems] == []


def test_images_for_a_model_that_reads_none_are_told_beforehand(model: Path) -> None:
    config = read("vision_megatron", model, "~rewards.cv_detection", "actor_train.data_args.image=image")
    (model / "preprocessor_config.json").unlink()
    [problem] = check_run(config, load_plugins()).problems
    assert problem.path == "actor_train.data_args.image"
    assert problem.rule == f"{model} has no preprocessor_config.json, so nothing says how its model reads images"
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    [problem] = check_run(config, load_plugins()).problems
    assert problem.rule.endswith("is a qwen3, and images are read by qwen2_vl, qwen2_5_vl, qwen3_vl in this version")


def test_sglang_is_given_no_images(model: Path) -> None:
    more = [
        "~rewards.cv_detection",
        "actor_train.data_args.image=image",
        "actor_infer.strategy_args.strategy_name=sglang",
    ]
    found = [str(problem) for problem in problems_of(read("vision_megatron", model, *more))]
    assert any("sglang is given no images in this version" in problem for problem in found)


def test_limits_of_images_without_images_are_told(model: Path) -> None:
    config = read("vision_megatron", model, "~rewards.cv_detection", "actor_train.data_args.image_max_pixels=99")
    assert any(
        "image_max_pixels: has no effect; data_args.image names no column" in notice for notice in config.notices
    )
    config = read(
        "vision_megatron",
        model,
        "~rewards.cv_detection",
        "actor_train.data_args.image_max_pixels=99",
        "actor_train.data_args.image=image",
    )
    assert not any("image_max_pixels" in notice for notice in config.notices)
