"""The table of variables: every row is whole, its own settings pass its own check, and roles differ where they must."""

import pytest
from roll_ascend.env import READ_BY_NOBODY, VARIABLES, Variable, generation_environment, role_environment
from roll_ascend.platform import NpuPlatform
from roll_ascend.values import Address, OneOf, Ports, Whole, port_ranges

ENVIRONMENT_GUIDE = (
    "HCCL_CONNECT_TIMEOUT",
    "HCCL_EXEC_TIMEOUT",
    "HCCL_DETERMINISTIC",
    "HCCL_OP_EXPANSION_MODE",
    "HCCL_BUFFSIZE",
    "HCCL_NPU_SOCKET_PORT_RANGE",
    "HCCL_IF_IP",
    "HCCL_SOCKET_IFNAME",
    "HCCL_IF_BASE_PORT",
    "HCCL_WHITELIST_DISABLE",
    "NPU_MEMORY_FRACTION",
    "PYTORCH_NPU_ALLOC_CONF",
    "MULTI_STREAM_MEMORY_REUSE",
    "TASK_QUEUE_ENABLE",
    "COMBINED_ENABLE",
    "CPU_AFFINITY_CONF",
    "OMP_NUM_THREADS",
    "VLLM_USE_V1",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_ASCEND_ENABLE_NZ",
    "VLLM_ASCEND_ENABLE_FLASHCOMM",
    "VLLM_ASCEND_ENABLE_PREFETCH_MLP",
    "VLLM_ASCEND_ENABLE_TOPK_OPTIMIZE",
    "VLLM_ASCEND_MODEL_EXECUTE_TIME_OBSERVE",
    "VLLM_ASCEND_TRACE_RECOMPILES",
    "VLLM_ENABLE_MC2",
    "ASCEND_GLOBAL_LOG_LEVEL",
    "ASCEND_SLOG_PRINT_TO_STDOUT",
    "ASDOPS_LOG_LEVEL",
    "ATB_LOG_LEVEL",
    "ASCEND_LAUNCH_BLOCKING",
    "ACL_OP_COMPILER_CACHE_MODE",
    "ACL_OP_COMPILER_CACHE_DIR",
    "ASCEND_MAX_OP_CACHE_SIZE",
    "ACL_PRECISION_MODE",
)


def test_every_variable_of_the_environment_guide_is_known_or_known_to_be_unread() -> None:
    assert [name for name in ENVIRONMENT_GUIDE if name not in VARIABLES and name not in READ_BY_NOBODY] == []
    assert not VARIABLES.keys() & READ_BY_NOBODY.keys()


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=lambda one: one.name)
def test_every_variable_has_a_unit_a_default_and_a_reason_and_accepts_what_is_set(variable: Variable) -> None:
    assert variable.unit and variable.default and variable.reason.endswith(".")
    for setting in (variable.training, variable.generation):
        assert not setting or variable.value.fault(setting) == ""


def test_training_and_engines_differ_in_exactly_what_excludes_engines() -> None:
    training, engine = role_environment("actor_train"), role_environment("actor_infer")
    different = {name: (training.get(name), engine.get(name)) for name in training | engine}
    assert {name: pair for name, pair in different.items() if pair[0] != pair[1]} == {
        "TASK_QUEUE_ENABLE": ("2", "1"),
        "PYTORCH_NPU_ALLOC_CONF": ("expandable_segments:True", ""),
        "VLLM_ASCEND_ENABLE_NZ": (None, "0"),
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_has_its_environment_wherever_it_runs(engine: str) -> None:
    # A judge inside a reward, one process or many: nothing of it depends on the role or on the executor.
    assert NpuPlatform().engine_defaults(engine).env == generation_environment()
    for role in ("actor_infer", "reward-llm_judge", "reward_model"):
        assert generation_environment() == role_environment(role)
    assert generation_environment()["HCCL_NPU_SOCKET_PORT_RANGE"] == "auto"


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        (Whole(120, 7200), ["120", "7200"], ["119", "7201", "1e3", "-1", "", "3600s"]),
        (OneOf(("AIV", "HOST")), ["AIV"], ["aiv", ""]),
        (OneOf(("true", "false"), any_case=True), ["True", "false"], ["yes"]),
        (Ports(), ["auto", "16666", "60000,61000-61050"], ["AUTO", "1-70000", "9-5", "0", "60000-60010,60005", "a-b"]),
        (Address(), ["10.0.0.1", "fe80::1"], ["10.0.0", "head"]),
    ],
)
def test_values_tell_right_from_wrong(value: Whole, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if value.fault(text)] == []
    assert [text for text in wrong if not value.fault(text)] == []
    assert value.fault(wrong[0]).startswith(("must", "names"))


def test_lists_of_ports_are_read() -> None:
    assert port_ranges("60000, 61000-61050") == [(60000, 60000), (61000, 61050)]
