"""The checklist for configs of other devices names what roll_ascend and roll-core really have."""

from __future__ import annotations

import re

import pytest
from roll_ascend.migration import MIGRATION
from roll_ascend.platform import NpuPlatform

from roll_core.plugins import load_plugins
from roll_core.resolve import resolve_backend
from roll_core.training.fsdp2_config import Fsdp2Config


def test_what_takes_the_place_of_a_strategy_or_an_engine_is_offered() -> None:
    registry = load_plugins()
    for name in set(MIGRATION.strategies.values()):
        assert resolve_backend(registry, "train", name, "npu").backend.name == name
    for name in set(MIGRATION.engines.values()):
        assert resolve_backend(registry, "infer", name, "npu").backend.name == name


def test_the_attention_is_one_of_the_platform() -> None:
    assert MIGRATION.attention == "fa2"
    assert "flash_attention_2" in NpuPlatform.attention


def test_options_of_a_family_are_options_of_fsdp2_and_its_patches_are_there() -> None:
    for family in MIGRATION.families:
        config = Fsdp2Config.model_validate({**family.training, **family.every_role})
        assert config.apply_expert_patch
        assert config.apply_tiled_mlp
    registry = load_plugins()
    for patch in ("expert_patch", "tiled_mlp"):
        assert resolve_backend(registry, "patch", patch, "npu").record.name == "roll_ascend"


@pytest.mark.parametrize(
    "model",
    [
        "Qwen/Qwen3-30B-A3B",
        "/models/Qwen3-235B-A22B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    ],
)
def test_models_whose_experts_need_the_patch_are_recognised(model: str) -> None:
    assert [family.has(model) for family in MIGRATION.families] == [True]


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-8B", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-VL-30B-A3B-Instruct"]
)
def test_models_of_another_kind_are_not(model: str) -> None:
    assert [family.has(model) for family in MIGRATION.families] == [False]


def test_every_change_says_why_in_a_sentence() -> None:
    reasons = [MIGRATION.attention_reason, *MIGRATION.variables.values()]
    reasons += [one.reason for one in (*MIGRATION.options, *MIGRATION.families)]
    assert all(re.fullmatch(r"[^.]{10,120}", reason) for reason in reasons)
    assert NpuPlatform().migration() is MIGRATION


def test_quantisation_to_fp8_by_either_name_is_refused() -> None:
    refused = {option.key for option in MIGRATION.options if option.refuses("ascend_mxfp8")}
    assert {"quantization", "online_quantization", "online_quantization_config"} <= refused
    assert "online_quantization" not in {option.key for option in MIGRATION.options if option.refuses("int8")}
