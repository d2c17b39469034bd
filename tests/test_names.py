"""The table of well-known names: spellings, packages, device files and variables."""

import pytest

from roll_core import names


@pytest.mark.parametrize(
    ("variable", "platforms"),
    [
        ("HCCL_NPU_SOCKET_PORT_RANGE", ("npu",)),
        ("VLLM_ASCEND_ENABLE_NZ", ("npu",)),
        ("TASK_QUEUE_ENABLE", ("npu",)),
        ("PYTORCH_NPU_ALLOC_CONF", ("npu",)),
        ("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES", ("npu",)),
        ("CUDA_VISIBLE_DEVICES", ("cuda",)),
        ("NVTE_BWD_LAYERNORM_SM_MARGIN", ("cuda",)),
        ("NCCL_SOCKET_IFNAME", ("cuda", "rocm")),
        ("PYTORCH_CUDA_ALLOC_CONF", ("cuda", "rocm")),
        ("HIP_VISIBLE_DEVICES", ("rocm",)),
        ("TASK_QUEUE_ENABLED", ()),
        ("OMP_NUM_THREADS", ()),
        ("USE_MODELSCOPE", ()),
        ("VLLM_USE_V1", ()),
    ],
)
def test_a_variable_belongs_to_the_platforms_that_read_it(variable: str, platforms: tuple[str, ...]) -> None:
    assert names.platforms_of_variable(variable) == platforms


def test_spellings_lead_to_the_name_and_its_package() -> None:
    for spelling in ("npu", "NPU", "ascend", "Huawei"):
        found = names.well_known("platform", spelling)
        assert found is not None and (found.name, found.package) == ("npu", "roll-ascend")
    assert names.package_of("transport", "transfer_queue") == "roll-transferqueue"
    assert names.package_of("infer", "vllm") == ""
    assert names.well_known("train", "npu") is None


def test_every_name_has_a_package_or_a_remark_and_no_spelling_means_two() -> None:
    for entries in names.WELL_KNOWN.values():
        assert all(bool(entry.package) != bool(entry.remark) for entry in entries)
        spelt = [text.lower() for entry in entries for text in (entry.name, *entry.spellings)]
        assert len(spelt) == len(set(spelt))


def test_clues_and_names_are_about_the_same_platforms() -> None:
    assert {clues.name for clues in names.PLATFORM_CLUES} == {entry.name for entry in names.WELL_KNOWN["platform"]}


def test_device_files_are_evidence_and_their_helpers_are_not() -> None:
    files = ["/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert names.device_evidence(files, {}) == {"npu": ["/dev/davinci0 and 1 more"]}


def test_a_shared_resource_is_taken_for_the_platform_whose_files_are_here() -> None:
    assert names.device_evidence(["/dev/kfd"], {"GPU": 2}) == {"rocm": ["/dev/kfd", "2 GPU in the Ray cluster"]}
    assert set(names.device_evidence([], {"GPU": 2})) == {"cuda", "rocm"}
    assert names.device_evidence([], {"CPU": 8, "NPU": 0}) == {}


def test_a_variable_has_another_name_on_another_platform_or_none() -> None:
    assert names.same_variable("NCCL_SOCKET_IFNAME", "npu") == "HCCL_SOCKET_IFNAME"
    assert names.same_variable("HCCL_SOCKET_IFNAME", "cuda") == "NCCL_SOCKET_IFNAME"
    assert names.same_variable("ASCEND_LAUNCH_BLOCKING", "rocm") is None
    assert names.same_variable("NCCL_DEBUG", "npu") is None


def test_paths_show_whose_software_they_lead_to() -> None:
    assert names.platforms_of_paths("/usr/lib:/usr/local/cuda-12.4/lib64") == ("cuda",)
    assert names.platforms_of_paths("/usr/local/Ascend/driver/lib64:/opt/rocm") == ("npu", "rocm")
    assert names.platforms_of_paths("/usr/lib:/srv/barracuda") == ()
