"""Configs of the shapes that are published for GPUs: each loads, plans for NPUs once migrated, and stays as it is."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

import pytest
import yaml

from roll_core.config.compose import read_config
from roll_core.config.plan import Request
from roll_core.config.planning import make_plan
from roll_core.migrate.checking import problems_of_text
from roll_core.migrate.config import Migrated, migrate_file
from roll_core.plugins import Registry, load_plugins

PUBLISHED = Path(__file__).parents[1] / "config" / "published"
CONFIGS = sorted(path for path in PUBLISHED.rglob("*.yaml") if path.parent.name != "config")
NAMES = [f"{path.parent.name}/{path.stem}" for path in CONFIGS]
# Presets that are not published with the configs that use them.
NEEDS_A_PRESET = {
    "agentic/gigpo",
    "other/distill_vision",
    "rlvr/deepspeed_lora",
    "rlvr/lora_variables",
    "rlvr/ulysses",
    "rlvr/vision_lora",
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    found = load_plugins()
    assert {"roll_ascend", "roll_cuda"} <= {record.name for record in found.records}
    return found


def beside(path: Path, text: str, tmp_path: Path) -> Path:
    """The text in a folder that has what the config includes."""
    (tmp_path / "config").symlink_to(PUBLISHED / "config")
    folder = tmp_path / path.parent.name
    folder.mkdir()
    (folder / path.name).write_text(text, newline="")
    return folder / path.name


def test_there_are_configs_of_every_shape() -> None:
    assert len(CONFIGS) >= 30


@pytest.mark.parametrize("path", CONFIGS, ids=NAMES)
def test_it_loads_and_can_be_planned(path: Path, registry: Registry) -> None:
    reading = read_config(path)
    found = [one for one in [*reading.problems, *reading.rule_problems()] if not one.is_not_built]
    told = [str(problem).splitlines()[0] for problem in found]
    if f"{path.parent.name}/{path.stem}" in NEEDS_A_PRESET:
        assert told
        assert all("strategy_config: refers to ${deepspeed_" in one for one in told)
    else:
        assert told == []
    assert reading.config is not None
    request = Request("npu", nodes=32, devices_per_node=8)
    plan = make_plan(reading.config, registry, reading.pipeline, [], request)
    assert plan.platform == "npu"
    assert plan.roles


@cache
def migrated_to_npu(path: Path) -> Migrated:
    return migrate_file(path, "npu", load_plugins())


@pytest.mark.parametrize("path", CONFIGS, ids=NAMES)
def test_it_migrates_once_and_passes(path: Path, registry: Registry, tmp_path: Path) -> None:
    migrated = migrated_to_npu(path)
    assert problems_of_text(migrated.text, path, "npu", registry) == []
    assert all(change.reason for change in migrated.changes)
    again = migrate_file(beside(path, migrated.text, tmp_path), "npu", registry)
    assert (again.text, again.changes) == (migrated.text, [])


@pytest.mark.parametrize("path", CONFIGS, ids=NAMES)
def test_comments_and_the_order_of_keys_stay(path: Path) -> None:
    before, after = path.read_text(), migrated_to_npu(path).text
    comments = [line for line in before.splitlines() if line.lstrip().startswith("#")]
    kept = [line for line in after.splitlines() if line.lstrip().startswith("#")]
    assert kept == comments
    assert [key for key in yaml.safe_load(before) if key in yaml.safe_load(after)] == list(yaml.safe_load(after))


@pytest.mark.parametrize("path", CONFIGS[::4], ids=NAMES[::4])
def test_the_way_back_and_there_again_ends_in_the_same_config(path: Path, registry: Registry, tmp_path: Path) -> None:
    there = migrated_to_npu(path)
    place = beside(path, there.text, tmp_path)
    back = migrate_file(place, "cuda", registry)
    assert problems_of_text(back.text, place, "cuda", registry) == []
    place.write_text(back.text, newline="")
    assert yaml.safe_load(migrate_file(place, "npu", registry).text) == yaml.safe_load(there.text)


def test_only_lines_about_the_platform_change() -> None:
    path = PUBLISHED / "rlvr" / "pg_variant.yaml"
    text = migrated_to_npu(path).text
    lines = [line for line in difflib.ndiff(path.read_text().splitlines(), text.splitlines()) if line[0] in "+-"]
    assert lines == [
        "+     attn_implementation: fa2",
        "-     strategy_name: megatron_train",
        "+     strategy_name: fsdp2_train",
        "-       tensor_model_parallel_size: 1",
        "-       pipeline_model_parallel_size: 1",
        "-       expert_model_parallel_size: 1",
        "-       use_distributed_optimizer: true",
        "-       recompute_granularity: full",
        "+       fsdp_size: 8",
        "+       param_dtype: bf16",
        "+       reduce_dtype: bf16",
        "+       reshard_after_forward: true",
        "+       offload_policy: false",
        "+     attn_implementation: fa2",
        "-     strategy_name: hf_infer",
        "+     strategy_name: fsdp2_infer",
        "-     strategy_config: ~",
        "+     strategy_config:",
        "+       fsdp_size: 8",
        "+       param_dtype: bf16",
        "+       reduce_dtype: bf16",
        "+       reshard_after_forward: true",
        "+       offload_policy: false",
    ]


@pytest.mark.parametrize(
    "text",
    ["{}\n", "\ufeffmax_steps: 3\n", "actor_train: 5\nsystem_envs: [1]\nrewards: x\nmax_steps: 1\n"],
)
def test_a_file_without_anything_to_migrate_stays_as_it_is(text: str, registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    assert migrate_file(path, "npu", registry) == Migrated(text)


def test_line_ends_and_marks_of_other_editors_stay(registry: Registry, tmp_path: Path) -> None:
    lines = ["\ufeffactor_train:", "  strategy_args:", "    strategy_name: megatron_train # x", "  device_mapping: [0]"]
    path = tmp_path / "run.yaml"
    path.write_text("\r\n".join(lines), encoding="utf-8", newline="")
    text = migrate_file(path, "npu", registry).text
    assert text.startswith("\ufeffactor_train:\r\n  strategy_args:\r\n    strategy_name: fsdp2_train # x\r\n")
    assert text.count("\n") == text.count("\r\n")


def rows_per_step(path: Path, text: str, tmp_path: Path) -> int:
    reading = read_config(beside(path, text, tmp_path))
    assert reading.config is not None
    return reading.config.roles()["actor_train"].mini_batch_size


@pytest.mark.parametrize("name", ["megatron_split", "megatron_moe", "megatron_huge", "packing", "fp8", "ulysses"])
def test_an_optimiser_step_has_as_many_rows_as_before(name: str, tmp_path: Path) -> None:
    path = PUBLISHED / "rlvr" / f"{name}.yaml"
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before = rows_per_step(path, path.read_text(), tmp_path / "before")
    assert rows_per_step(path, migrated_to_npu(path).text, tmp_path / "after") == before
