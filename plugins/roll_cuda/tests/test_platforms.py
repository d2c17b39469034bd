"""The platforms cuda and rocm: facts, environment and Ray options, on a machine without a GPU."""

from types import SimpleNamespace

import pytest
from roll_cuda.cuda import CudaPlatform
from roll_cuda.rocm import RocmPlatform

from roll_core.errors import RollError
from roll_core.platforms import Ability, Platform

BOTH = [CudaPlatform(), RocmPlatform()]


def test_facts_are_readable_from_the_classes() -> None:
    def facts(one: type[Platform]) -> tuple[str, ...]:
        return one.name, one.device_type, one.ray_resource, one.visible_devices_env, one.collective_backend

    assert facts(CudaPlatform) == ("cuda", "cuda", "GPU", "CUDA_VISIBLE_DEVICES", "nccl")
    assert facts(RocmPlatform) == ("rocm", "cuda", "GPU", "HIP_VISIBLE_DEVICES", "nccl")


@pytest.mark.parametrize("platform", BOTH)
def test_devices_are_asked_of_ray_as_gpus(platform: Platform) -> None:
    assert platform.ray_options(2) == {"num_cpus": 0, "num_gpus": 2}


@pytest.mark.parametrize("platform", BOTH)
def test_the_best_attention_needs_no_further_package(platform: Platform) -> None:
    assert platform.attention[0] == "sdpa"


def test_visible_devices_are_opaque_text() -> None:
    ids = ["GPU-8c1e5c2e", "MIG-7a1b"]
    assert CudaPlatform().visible(ids) == {
        "CUDA_VISIBLE_DEVICES": "GPU-8c1e5c2e,MIG-7a1b",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    }
    assert CudaPlatform().visible_ids({"CUDA_VISIBLE_DEVICES": "GPU-8c1e5c2e, MIG-7a1b"}) == ids


def test_both_variables_of_rocm_are_set_alike() -> None:
    assert RocmPlatform().visible(["1", "0"]) == {
        "HIP_VISIBLE_DEVICES": "1,0",
        "CUDA_VISIBLE_DEVICES": "1,0",
        "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    }


def test_one_of_equivalent_variables_is_enough_and_equal_ones_are_fine() -> None:
    platform = RocmPlatform()
    assert platform.visible_ids({"CUDA_VISIBLE_DEVICES": "4,5"}) == ["4", "5"]
    assert platform.visible_ids({"HIP_VISIBLE_DEVICES": "4,5"}) == ["4", "5"]
    assert platform.visible_ids({"HIP_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4, 5"}) == ["4", "5"]
    assert platform.visible_ids({}) is None


def test_equivalent_variables_that_differ_are_an_error() -> None:
    with pytest.raises(RollError) as error:
        RocmPlatform().visible_ids({"HIP_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "0"})
    assert str(error.value) == (
        "two lists of visible devices differ: HIP_VISIBLE_DEVICES=4,5 and CUDA_VISIBLE_DEVICES=0\n"
        "  try: unset one of them"
    )


@pytest.mark.parametrize(
    ("platform", "variable"),
    [(CudaPlatform(), "PYTORCH_CUDA_ALLOC_CONF"), (RocmPlatform(), "PYTORCH_HIP_ALLOC_CONF")],
)
def test_engines_have_no_expandable_segments_and_training_has(platform: Platform, variable: str) -> None:
    assert platform.worker_env("actor_train")[variable] == "expandable_segments:True"
    assert platform.worker_env("actor_infer")[variable] == ""
    assert platform.worker_env("reward")[variable] == ""
    assert platform.engine_defaults("vllm").env[variable] == ""
    assert platform.engine_defaults("sglang").env == {variable: ""}
    # An engine without a memory pool of its own needs nothing.
    assert platform.engine_defaults("hf_infer").env == {}


def test_switches_of_vllm_reach_vllm_only() -> None:
    assert CudaPlatform().engine_defaults("vllm").env["VLLM_ALLREDUCE_USE_SYMM_MEM"] == "0"
    assert RocmPlatform().engine_defaults("vllm").env["VLLM_ROCM_USE_AITER"] == "0"
    for platform in BOTH:
        assert not any(name.startswith("VLLM") for name in platform.worker_env("actor_train"))


def test_only_one_vendors_collectives_are_set() -> None:
    assert CudaPlatform().worker_env("actor_train")["NCCL_CUMEM_ENABLE"] == "0"
    assert not any(name.startswith("NCCL") for name in RocmPlatform().worker_env("actor_train"))


class Cards:
    """torch's module of a device with two cards, and what was asked of it."""

    def __init__(self, initialised: bool) -> None:
        self.initialised = initialised
        self.emptied = 0

    def is_initialized(self) -> bool:
        return self.initialised

    def empty_cache(self) -> None:
        self.emptied += 1

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=["GPU-8c1e5c2e", "MIG-7a1b"][index])


@pytest.mark.parametrize("initialised", [False, True])
def test_emptying_the_cache_frees_workspaces_of_a_device_in_use(
    initialised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    cards, cleared = Cards(initialised), []
    monkeypatch.setattr(torch, "get_device_module", lambda kind: cards)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append(1), raising=False)
    CudaPlatform().empty_cache()
    assert (len(cleared), cards.emptied) == (int(initialised), 1)


def test_a_device_is_identified_by_its_uuid_whatever_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "get_device_module", lambda kind: Cards(True))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,MIG-7a1b")
    assert [CudaPlatform().device_uid(index) for index in range(2)] == ["GPU-8c1e5c2e", "MIG-7a1b"]


def test_what_was_never_seen_to_work_is_not_claimed() -> None:
    assert Ability.DEVICE_IPC in CudaPlatform().abilities()
    assert Ability.DEVICE_IPC not in RocmPlatform().abilities()


@pytest.mark.parametrize("base", [CudaPlatform, RocmPlatform])
def test_a_misspelt_member_of_a_subclass_is_refused(base: type[Platform]) -> None:
    with pytest.raises(
        TypeError, match=r"Card\.worker_envs is not part of the Platform contract; did you mean 'worker_"
    ):
        type("Card", (base,), {"worker_envs": dict})
