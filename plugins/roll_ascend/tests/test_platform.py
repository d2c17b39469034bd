"""The platform npu: facts, environment and Ray options, on a machine without one."""

import pytest
from roll_ascend.platform import NpuPlatform

from roll_core.platforms import Ability

platform = NpuPlatform()


def test_facts_are_readable_from_the_class() -> None:
    assert (NpuPlatform.name, NpuPlatform.device_type, NpuPlatform.ray_resource) == ("npu", "npu", "NPU")
    assert (NpuPlatform.visible_devices_env, NpuPlatform.collective_backend) == ("ASCEND_RT_VISIBLE_DEVICES", "hccl")
    assert NpuPlatform.attention[0] == "flash_attention_2"


def test_devices_are_asked_of_ray_by_their_own_resource() -> None:
    assert platform.ray_options(2) == {"num_cpus": 0, "resources": {"NPU": 2}}
    assert platform.ray_options(0.01) == {"num_cpus": 0, "resources": {"NPU": 0.01}}


def test_a_worker_sees_exactly_its_devices_and_ray_leaves_them_alone() -> None:
    assert platform.visible(["7", "5"]) == {
        "ASCEND_RT_VISIBLE_DEVICES": "7,5",
        "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "1",
    }
    assert platform.visible_ids({"ASCEND_RT_VISIBLE_DEVICES": "7,5"}) == ["7", "5"]
    assert platform.visible_ids({"CUDA_VISIBLE_DEVICES": "0"}) is None


@pytest.mark.parametrize("role", ["actor_train", "critic", "reference"])
def test_training_and_scoring_queue_in_two_levels(role: str) -> None:
    env = platform.worker_env(role)
    assert env["TASK_QUEUE_ENABLE"] == "2"
    assert env["PYTORCH_NPU_ALLOC_CONF"] == "expandable_segments:True"
    assert "VLLM_ASCEND_ENABLE_NZ" not in env


def test_engines_can_take_new_weights_and_sleep() -> None:
    for env in (platform.worker_env("actor_infer"), platform.engine_defaults("vllm").env):
        assert env["TASK_QUEUE_ENABLE"] == "1"
        assert env["VLLM_ASCEND_ENABLE_NZ"] == "0"
        assert env["PYTORCH_NPU_ALLOC_CONF"] == ""


@pytest.mark.parametrize("role", ["actor_train", "actor_infer", "reference", "critic", "math_rule"])
def test_roles_can_share_a_card_and_all_values_are_text(role: str) -> None:
    env = platform.worker_env(role)
    assert env["HCCL_NPU_SOCKET_PORT_RANGE"] == "auto"
    assert all(isinstance(value, str) for value in env.values())


def test_callers_cannot_change_the_defaults() -> None:
    platform.worker_env("actor_train")["TASK_QUEUE_ENABLE"] = "0"
    assert platform.worker_env("actor_train")["TASK_QUEUE_ENABLE"] == "2"


def test_what_was_never_seen_to_work_is_not_claimed() -> None:
    assert Ability.DEVICE_IPC not in platform.abilities()
    assert Ability.ULYSSES not in platform.abilities()


def test_a_misspelt_member_of_a_subclass_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Board\.device_typ is not part of the Platform contract; did you mean 'dev"):
        type("Board", (NpuPlatform,), {"device_typ": "npu"})


def test_setup_imports_torch_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_npu", None)
    with pytest.raises(ModuleNotFoundError, match="torch_npu"):
        platform.setup()
