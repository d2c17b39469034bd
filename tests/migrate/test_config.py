"""What is changed in a config for another platform, and why; what is left to a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from roll_core.migrate.config import migrate
from roll_core.migrate.draft import Draft
from roll_core.migrate.yaml_text import YamlText
from roll_core.migration import Migration, ModelFamily, RefusedOption
from roll_core.platforms import Ability, Platform
from roll_core.plugins import Registry, load_plugins

Migrate = Callable[..., Draft]


class PretendPlatform(Platform):
    name: ClassVar[str] = "pretend"
    device_type: ClassVar[str] = "cpu"
    ray_resource: ClassVar[str] = "PRETEND"
    collective_backend: ClassVar[str] = "gloo"
    attention: ClassVar[tuple[str, ...]] = ("sdpa", "eager")

    def migration(self) -> Migration:
        return Migration(
            strategies={"megatron_train": "fsdp2_train", "megatron_infer": "fsdp2_infer"},
            engines={"sglang": "vllm"},
            attention="sdpa",
            attention_reason="the only fast one",
            options=(RefusedOption("quantization", "no such kernels", "fp8"),),
            families=(ModelFamily("tiny-moe", "needs it", training={"apply_expert_patch": True}),),
            variables={"FAST_PATH": "there is none"},
            judge_needs_own_devices=True,
        )


class SplittingPlatform(PretendPlatform):
    def abilities(self) -> frozenset[Ability]:
        return frozenset({Ability.ULYSSES})


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins()


@pytest.fixture
def migrated(registry: Registry) -> Migrate:
    def make(text: str | Mapping[str, Any], platform: Platform | None = None) -> Draft:
        text = text if isinstance(text, str) else yaml.safe_dump(dict(text), sort_keys=False)
        draft = Draft(YamlText(text), yaml.safe_load(text))
        migrate(draft, platform or PretendPlatform(), registry)
        assert yaml.safe_load(draft.yaml.text) == draft.values
        return draft

    return make


def trainer(options: Mapping[str, Any] | None = None, devices: int = 8, **role: Any) -> dict[str, Any]:
    strategy = {"strategy_name": "megatron_train", "strategy_config": dict(options or {})}
    return {"actor_train": {"strategy_args": strategy, "device_mapping": f"list(range(0, {devices}))"} | role}


def reasons(draft: Draft) -> dict[str, str]:
    return {change.path: change.reason for change in draft.changes}


def left(draft: Draft) -> dict[str, str]:
    return {one.path: one.what for one in draft.left}


def test_a_trainer_gets_a_strategy_that_works_and_options_in_its_words(migrated: Migrate) -> None:
    draft = migrated({"pretrain": "Qwen/Qwen2.5-7B"} | trainer({"tensor_model_parallel_size": 2, "bf16": True}))
    assert draft.get("actor_train", "strategy_args") == {
        "strategy_name": "fsdp2_train",
        "strategy_config": {
            "fsdp_size": 8,
            "param_dtype": "bf16",
            "reduce_dtype": "bf16",
            "reshard_after_forward": True,
            "offload_policy": True,
        },
    }
    told = reasons(draft)
    config = "actor_train.strategy_args.strategy_config"
    assert told["actor_train.strategy_args.strategy_name"] == (
        "'megatron_train' does not run on platform pretend; fsdp2_train does"
    )
    assert told[f"{config}.tensor_model_parallel_size"].startswith("fsdp2 shards weights over fsdp_size devices")
    assert told[f"{config}.bf16"] == "precision is param_dtype's"


@pytest.mark.parametrize(
    ("model", "offloads"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", False),
        ("/models/Qwen3-4B", False),
        ("Qwen/Qwen2.5-7B", True),
        ("Qwen/Qwen3-30B-A3B", True),
        ("models/qwen3_14b_base", True),
        ("/srv/model", True),
    ],
)
def test_large_models_keep_weights_on_the_host(migrated: Migrate, model: str, offloads: bool) -> None:
    draft = migrated({"pretrain": model} | trainer())
    assert draft.get("actor_train", "strategy_args", "strategy_config", "offload_policy") is offloads
    assert bool(draft.left) is (model == "/srv/model")


@pytest.mark.parametrize(
    ("split", "rows", "steps", "expected"),
    [
        ({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}, 1, 64, (1, 16)),
        ({"context_parallel_size": 4}, 8, 1, (2, 1)),
        ({"tensor_model_parallel_size": 8}, 2, 12, (1, 3)),
        ({"tensor_model_parallel_size": 1}, 3, 5, (3, 5)),
    ],
)
def test_the_rows_of_an_optimiser_step_stay(
    migrated: Migrate, split: dict[str, int], rows: int, steps: int, expected: tuple[int, int]
) -> None:
    training = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": steps}
    draft = migrated(trainer(split, training_args=training))
    found = draft.get("actor_train", "training_args")
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"]) == expected


def test_a_step_too_small_to_share_becomes_the_smallest_and_is_told(migrated: Migrate) -> None:
    training = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
    draft = migrated({"rollout_batch_size": 32} | trainer({"tensor_model_parallel_size": 8}, training_args=training))
    assert draft.get("actor_train", "training_args") == training
    assert left(draft)["actor_train.training_args"] == (
        "an optimiser step had 1 rows and has 8 now, since each of 8 ranks needs one"
    )


def test_options_that_nobody_knows_go_and_are_left_to_a_person(migrated: Migrate) -> None:
    draft = migrated(trainer({"magic": 7}))
    path = "actor_train.strategy_args.strategy_config.magic"
    assert draft.get(*path.split(".")) is None
    assert left(draft)[path] == ("an option of megatron_train that fsdp2 does not have was 7: look whether it mattered")


def test_packed_rows_become_micro_batches_of_as_many_tokens(migrated: Migrate) -> None:
    packing = {"use_sequence_packing": True, "sequence_packing_args": {"max_packed_sequence_length_train": 8192}}
    draft = migrated({"prompt_length": 100, "response_length": 101} | trainer(**packing))
    role = draft.get("actor_train")
    assert role["use_dynamic_batching_in_train"] is True
    assert (role["max_tokens_per_microbatch_in_train"], role["max_tokens_per_microbatch_in_infer"]) == (8192, 204)
    assert not {"use_sequence_packing", "sequence_packing_args"} & set(role)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"flash_attn": "fa2"}, {"attn_implementation": "sdpa"}),
        ({"flash_attn": "fa2", "attn_implementation": "eager"}, {"attn_implementation": "eager"}),
        ({"attn_implementation": "auto"}, {"attn_implementation": "auto"}),
        ({"device_map": "cuda:0"}, {"attn_implementation": "sdpa"}),
        ({"ulysses_size": 2}, {"attn_implementation": "sdpa"}),
    ],
)
def test_a_model_is_loaded_as_the_platform_can(
    migrated: Migrate, before: dict[str, Any], after: dict[str, Any]
) -> None:
    draft = migrated(trainer(model_args={"dtype": "bf16"} | before))
    assert draft.get("actor_train", "model_args") == {"dtype": "bf16"} | after


def test_a_platform_that_splits_sequences_goes_on_doing_so(migrated: Migrate) -> None:
    draft = migrated(trainer(model_args={"ulysses_size": 2}), SplittingPlatform())
    assert draft.get("actor_train", "model_args", "ulysses_size") == 2


def test_an_engine_is_replaced_in_its_own_words(migrated: Migrate) -> None:
    options = {"mem_fraction_static": 0.7, "tp_size": 2, "disable_radix_cache": True, "log_level": "info"}
    draft = migrated({"actor_infer": {"strategy_args": {"strategy_name": "sglang", "strategy_config": options}}})
    assert draft.get("actor_infer", "strategy_args") == {
        "strategy_name": "vllm",
        "strategy_config": {
            "gpu_memory_utilization": 0.7,
            "tensor_parallel_size": 2,
            "enable_prefix_caching": False,
        },
    }
    assert reasons(draft)["actor_infer.strategy_args.strategy_config.log_level"] == (
        "an option of sglang that vllm does not have"
    )


def test_an_engine_gets_room_for_the_longest_row(migrated: Migrate) -> None:
    engine = {"strategy_name": "vllm", "strategy_config": {"max_model_len": 8000}}
    config = {"prompt_length": 2048, "actor_infer": {"strategy_args": engine}}
    draft = migrated(config | {"response_length": 8192})
    assert draft.get("actor_infer", "strategy_args", "strategy_config", "max_model_len") == 10240
    assert migrated(config | {"response_length": 4096}).changes == []


def test_an_option_that_the_platform_refuses_goes_and_others_with_its_name_stay(migrated: Migrate) -> None:
    engine = {"strategy_name": "vllm", "strategy_config": {"quantization": "FP8", "block_size": 16}}
    draft = migrated({"actor_infer": {"strategy_args": engine}})
    assert draft.get("actor_infer", "strategy_args", "strategy_config") == {"block_size": 16}
    assert "actor_infer.strategy_args.strategy_config.quantization" in left(draft)
    engine["strategy_config"] = {"quantization": "awq"}
    assert migrated({"actor_infer": {"strategy_args": engine}}).changes == []


def test_variables_of_others_are_taken_out_everywhere(migrated: Migrate) -> None:
    draft = migrated(
        {
            "system_envs": {"NCCL_DEBUG": "INFO", "FAST_PATH": "1", "MINE": "x", "LD_LIBRARY_PATH": "/opt/cuda/lib"},
            "actor_train": {"system_envs": {"CUDA_VISIBLE_DEVICES": "0"}, "device_mapping": [0]},
            "rewards": {"mine": {"system_envs": {"HCCL_IF_IP": "1.2.3.4"}}},
        }
    )
    assert draft.get("system_envs") == {"MINE": "x"}
    assert "system_envs" not in draft.get("actor_train")
    assert draft.get("rewards") == {"mine": {}}
    assert reasons(draft)["system_envs.FAST_PATH"] == "there is none"
    assert "system_envs.LD_LIBRARY_PATH" in left(draft)


def test_a_patch_that_nobody_brings_there_goes_with_what_hangs_on_it(registry: Registry) -> None:
    core_alone = Registry(tuple(record for record in registry.records if record.name == "roll_core"))
    options = {"fsdp_size": 8, "apply_tiled_mlp": True, "tiled_num_shards": 8}
    strategy = {"strategy_name": "fsdp2_train", "strategy_config": options}
    text = yaml.safe_dump({"actor_train": {"strategy_args": strategy, "device_mapping": [0]}})
    draft = Draft(YamlText(text), yaml.safe_load(text))
    migrate(draft, PretendPlatform(), core_alone)
    assert draft.get("actor_train", "strategy_args", "strategy_config") == {"fsdp_size": 8}
    assert reasons(draft)["actor_train.strategy_args.strategy_config.apply_tiled_mlp"] == (
        "no plugin brings the model patch tiled_mlp for platform pretend"
    )


def test_a_family_of_models_gets_what_it_needs(migrated: Migrate) -> None:
    draft = migrated({"pretrain": "a/tiny-moe"} | trainer())
    assert draft.get("actor_train", "strategy_args", "strategy_config", "apply_expert_patch") is True


def test_a_judge_is_left_to_a_person(migrated: Migrate) -> None:
    judge = {"strategy_args": {"strategy_name": "hf_infer"}, "device_mapping": [6, 7]}
    draft = migrated(trainer() | {"rewards": {"llm_judge": judge}})
    assert left(draft)["rewards.llm_judge.device_mapping"] == (
        "shares devices with actor_train; on platform pretend a judge needs its own"
    )


def test_a_platform_named_in_the_config_follows(migrated: Migrate) -> None:
    assert migrated("platform: other  # here\n").yaml.text == "platform: pretend  # here\n"


def test_a_role_that_another_file_describes_is_left_alone(registry: Registry) -> None:
    text = "max_steps: 3\nactor_train: {training_args: {learning_rate: 1.0e-6}}\n"
    values = trainer({"tensor_model_parallel_size": 2}) | {"max_steps": 3}
    draft = Draft(YamlText(text), values)
    migrate(draft, PretendPlatform(), registry)
    assert (draft.yaml.text, draft.changes) == (text, [])
    assert left(draft)["actor_train"].startswith("is described in another file")


def test_a_section_borrowed_from_another_is_changed_where_it_stands(tmp_path: Path, registry: Registry) -> None:
    text = (
        yaml.safe_dump(trainer()) + "reference: {strategy_args: '${actor_train.strategy_args}', device_mapping: [0]}\n"
    )
    values = yaml.safe_load(text)
    values["reference"]["strategy_args"] = dict(values["actor_train"]["strategy_args"])
    draft = Draft(YamlText(text), values)
    migrate(draft, PretendPlatform(), registry)
    assert "${actor_train.strategy_args}" in draft.yaml.text
    assert left(draft)["reference.strategy_args"].startswith("is ${actor_train.strategy_args}; what has to change")
