"""What in a config no NPU can do, found without a machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from roll_ascend.platform import NpuPlatform

from roll_core.config.compose import load_config_file
from roll_core.errors import Problem

Make = Callable[..., Any]
EXAMPLES = Path(__file__).parents[3] / "examples" / "ascend_examples"


@pytest.fixture(autouse=True)
def _clean_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_ASCEND_ENABLE_NZ", "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)


def found(config: Any) -> dict[str, Problem]:
    problems = NpuPlatform().problems(config)
    assert all(problem.hint for problem in problems)
    return {problem.path: problem for problem in problems}


def test_a_config_for_npus_has_no_problems(config: Make) -> None:
    assert found(config()) == {}
    assert found(config({"actor_train.model_args.attn_implementation": "fa2"})) == {}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_published_examples_have_no_problems(name: str) -> None:
    assert found(load_config_file(EXAMPLES / name)) == {}


def test_megatron_is_refused_with_what_to_write_instead(config: Make) -> None:
    megatron = config(
        {
            "actor_train.strategy_args.strategy_name": "megatron_train",
            "enable_reference": True,
            "reference": {"strategy_args": {"strategy_name": "megatron_infer"}, "device_mapping": "[0, 1]"},
        }
    )
    problems = found(megatron)
    assert list(problems) == ["actor_train.strategy_args.strategy_name", "reference.strategy_args.strategy_name"]
    for problem, instead in zip(problems.values(), ("fsdp2_train", "fsdp2_infer"), strict=True):
        assert "is not available on NPUs" in problem.rule and problem.hint.startswith(f"strategy_name: {instead}, ")


def test_a_package_that_brings_megatron_for_npus_is_left_to_itself(config: Make) -> None:
    assert found(config({"actor_train.strategy_args.strategy_name": "mindspeed/megatron_train"})) == {}


@pytest.mark.parametrize("name", ["flash_attn", "flash_attention_3", "flex_attention"])
def test_attention_for_other_devices_is_refused(config: Make, name: str) -> None:
    problems = found(config({"actor_train.model_args.attn_implementation": name}))
    (problem,) = problems.values()
    assert problem.path == "actor_train.model_args.attn_implementation" and problem.value == name
    assert problem.rule == f"platform 'npu' does not offer '{name}'" and problem.hint.startswith("fa2")


def test_attention_hidden_among_the_models_own_keys_is_found(config: Make) -> None:
    hidden = {"actor_train.model_args.model_config_kwargs": {"attn_implementation": "flash_attn"}}
    assert list(found(config(hidden))) == ["actor_train.model_args.model_config_kwargs.attn_implementation"]


@pytest.mark.parametrize(
    "options", [{"quantization": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}, {"quantization": "compressed-FP8"}]
)
def test_fp8_is_refused_for_engines(config: Make, options: dict[str, str]) -> None:
    (problem,) = found(config({"actor_infer.strategy_args.strategy_config": options})).values()
    assert problem.rule == "Atlas A2 and A3 do not compute in FP8"


@pytest.mark.parametrize("where", ["system_envs", "actor_infer.system_envs"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("VLLM_ASCEND_ENABLE_NZ", "1"), ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")],
)
def test_variables_that_an_engine_cannot_live_with_are_refused(config: Make, where: str, name: str, value: str) -> None:
    assert list(found(config({where: {name: value}}))) == [f"{where}.{name}"]


def test_a_shell_that_follows_a_guide_for_training_is_told_before_the_engine_fails(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True")
    (problem,) = NpuPlatform().problems(config())
    assert problem.path == ""
    assert problem.rule.startswith(
        "PYTORCH_NPU_ALLOC_CONF, which the environment of this process sets, reaches actor_infer: an engine that can"
    )
    assert problem.hint.startswith("unset PYTORCH_NPU_ALLOC_CONF; leave it out")
    assert found(config({"actor_infer.system_envs": {"PYTORCH_NPU_ALLOC_CONF": ""}})) == {}


def test_the_same_variables_are_fine_where_no_engine_gets_them(config: Make) -> None:
    allocator = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
    assert found(config({"actor_train.system_envs": allocator})) == {}
    assert found(config({"system_envs": allocator, "actor_infer.system_envs": {"PYTORCH_NPU_ALLOC_CONF": ""}})) == {}
    assert found(config({"system_envs": allocator, "actor_infer.strategy_args.strategy_name": "hf_infer"})) == {}


def test_waiting_for_every_operator_excludes_graphs(config: Make) -> None:
    blocking = {"system_envs": {"ASCEND_LAUNCH_BLOCKING": "1"}}
    assert list(found(config(blocking))) == ["system_envs.ASCEND_LAUNCH_BLOCKING"]
    eager = {"actor_infer.strategy_args.strategy_config": {"enforce_eager": True}}
    assert found(config(blocking | eager)) == {}


def test_a_buffer_in_bytes_is_refused_with_the_megabytes_that_were_meant(config: Make) -> None:
    (problem,) = found(config({"system_envs": {"HCCL_BUFFSIZE": 2147483648}})).values()
    assert problem.path == "system_envs.HCCL_BUFFSIZE"
    assert problem.hint == "it is counted in MB: HCCL_BUFFSIZE=2048"


def test_an_address_for_all_nodes_is_refused_and_for_one_node_fine(config: Make) -> None:
    address = {"system_envs": {"HCCL_IF_IP": "10.0.0.1"}}
    assert found(config(address)) == {}
    (problem,) = found(config(address | {"num_nodes": 2})).values()
    assert problem.path == "system_envs.HCCL_IF_IP" and "each of the 2 nodes needs a value of its own" in problem.rule


def test_visible_cards_are_not_the_configs_to_choose(config: Make) -> None:
    (problem,) = found(config({"system_envs": {"ASCEND_RT_VISIBLE_DEVICES": "4,5"}})).values()
    assert problem.hint == "export ASCEND_RT_VISIBLE_DEVICES before the run; device_mapping then counts within it"


def test_what_does_nothing_is_no_problem(config: Make) -> None:
    assert found(config({"system_envs": {"VLLM_ASCEND_ENABLE_FLASHCOMM": "0", "VLLM_ENABLE_MC2": "1"}})) == {}
