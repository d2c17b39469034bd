"""Findings about what is installed: versions that go together, triton, flash_attn, CANN, the driver, the chip."""

from typing import Any

import pytest
from roll_ascend.checks import CHECKS, findings
from roll_ascend.versions import GUIDE, VLLM_ASCEND

from roll_core.findings import Level


def test_a_machine_as_documented_is_well_in_every_respect(planted: Any) -> None:
    found = findings(planted.machine())
    assert [finding for finding in found if finding.level is not Level.OK] == []
    assert {finding.subject for finding in found} == set(CHECKS)
    assert not any(finding.remedy for finding in found)


def test_the_guides_stack_is_named_and_said_to_mix_two_rows(planted: Any) -> None:
    (finding,) = planted.seen("version matrix")
    assert finding.level is Level.OK
    assert finding.found.startswith("as in ROLL's guide for Ascend NPUs: python 3.12, CANN 9.1.0, torch 2.10.0, ")
    assert (
        "takes vllm-ascend and triton-ascend from vLLM-Ascend's row 0.23.0rc1, and CANN and torch-npu" in finding.found
    )


def test_the_guides_stack_is_no_row_of_vllm_ascends_own_table() -> None:
    for name in ("CANN", "torch-npu", "vllm-ascend", "triton-ascend"):
        rows = [row.versions[name] for row in VLLM_ASCEND]
        assert GUIDE.versions[name] in rows and len(set(rows)) == 2
    assert all(any(row.versions[name] != GUIDE.versions[name] for name in row.versions) for row in VLLM_ASCEND)


@pytest.mark.parametrize("row", VLLM_ASCEND, ids=lambda row: row.versions["vllm-ascend"])
def test_a_whole_row_of_vllm_ascends_table_is_well(planted: Any, row: Any) -> None:
    planted.cann(row.versions["CANN"])
    for name in row.versions.keys() - {"CANN"}:
        planted.install(name, row.versions[name])
    (finding,) = planted.seen("version matrix")
    assert finding.level is Level.OK and finding.found.startswith(f"as in {row.source}: ")
    assert "mix" not in finding.found


def test_another_mixture_is_a_warning_that_names_what_differs(planted: Any) -> None:
    planted.cann("8.5.0")
    planted.install("triton-ascend", "3.2.2")
    finding = planted.worst("version matrix")
    assert finding.level is Level.WARNING
    assert finding.found == (
        "no table has these versions together; nearest is ROLL's guide for Ascend NPUs: "
        "CANN 8.5.0 instead of 9.1.0, triton-ascend 3.2.2 instead of 3.2.1"
    )
    assert finding.remedy.startswith("take one row whole")


def test_a_torch_for_plain_processors_is_the_documented_one(planted: Any) -> None:
    planted.install("torch", "2.10.0+cpu")
    assert planted.worst("version matrix").level is Level.OK
    assert planted.worst("torch and torch-npu").level is Level.OK


def test_what_an_interrupted_installation_left_is_no_package(planted: Any) -> None:
    (planted.site / "~orch-2.9.0.dist-info").mkdir()
    (planted.site / "vllm-0.22.0.dist-info").mkdir()
    assert planted.worst("version matrix").level is Level.OK


def test_another_python_is_not_validated(planted: Any) -> None:
    planted.given["python"] = "3.11"
    assert "python 3.11 instead of 3.12" in planted.worst("version matrix").found


def test_without_torch_npu_there_is_nothing_to_compare(planted: Any) -> None:
    planted.uninstall("torch-npu")
    finding = planted.worst("version matrix")
    assert (finding.level, finding.found) == (Level.ERROR, "torch-npu is not installed")
    assert "torch-npu==2.10.0.post4" in finding.remedy
    assert planted.seen("torch and torch-npu") == []


def test_torch_npu_of_another_torch_is_an_error_that_names_both(planted: Any) -> None:
    planted.install("torch", "2.9.0")
    finding = planted.worst("torch and torch-npu")
    assert finding.level is Level.ERROR
    assert finding.found.startswith("torch 2.9.0 and torch-npu 2.10.0.post4 are of different releases")
    assert finding.remedy == "install torch 2.10.0, or torch-npu for torch 2.9.0"
    planted.uninstall("torch")
    assert planted.worst("torch and torch-npu").found == "torch-npu 2.10.0.post4 without torch"


def test_vllm_needs_the_vllm_ascend_of_its_release(planted: Any) -> None:
    planted.install("vllm", "0.18.0")
    finding = planted.worst("vllm and vllm-ascend")
    assert finding.level is Level.ERROR and "vllm 0.18.0 and vllm-ascend 0.23.0rc1" in finding.found
    planted.uninstall("vllm-ascend")
    assert planted.worst("vllm and vllm-ascend").found == "vllm 0.18.0 without vllm-ascend sees no NPU"


def test_a_machine_that_only_trains_needs_no_vllm(planted: Any) -> None:
    for name in ("vllm", "vllm-ascend", "triton-ascend"):
        planted.uninstall(name)
    assert planted.seen("vllm and vllm-ascend") == [] and planted.seen("triton") == []
    assert planted.worst("version matrix").level is Level.OK


def test_triton_beside_triton_ascend_is_an_error_with_the_two_commands(planted: Any) -> None:
    planted.install("triton", "3.5.0")
    finding = planted.worst("triton")
    assert finding.level is Level.ERROR
    assert finding.found.startswith("triton 3.5.0 is installed beside triton-ascend 3.2.1")
    assert finding.remedy == (
        "pip uninstall -y triton triton-ascend; pip install triton-ascend==3.2.1 "
        "--extra-index-url https://mirrors.huaweicloud.com/ascend/repos/pypi"
    )


def test_triton_ascend_damaged_by_removing_triton_is_seen(planted: Any) -> None:
    (planted.site / "triton" / "__init__.py").unlink()
    finding = planted.worst("triton")
    assert finding.level is Level.ERROR and "is damaged" in finding.found
    (planted.site / "triton").rmdir()
    assert "its folder triton is gone" in planted.worst("triton").found


def test_a_missing_triton_ascend_is_slow_and_no_more(planted: Any) -> None:
    planted.uninstall("triton-ascend")
    assert planted.worst("triton").level is Level.WARNING


def test_the_package_flash_attn_is_an_error(planted: Any) -> None:
    planted.install("flash_attn", "2.8.3")
    finding = planted.worst("flash_attn")
    assert finding.level is Level.ERROR and finding.found.startswith("flash_attn 2.8.3 is installed")
    assert finding.remedy.startswith("pip uninstall -y flash_attn")


def test_cann_that_was_not_sourced_is_an_error_with_the_two_lines(planted: Any) -> None:
    # As in an image started by another user: ENV has the folder, .bashrc was not read.
    del planted.environ["ASCEND_OPP_PATH"], planted.environ["ATB_HOME_PATH"]
    finding = planted.worst("CANN")
    assert finding.level is Level.ERROR
    assert finding.found == (
        "CANN is installed, but ascend-toolkit/set_env.sh and nnal/atb/set_env.sh were not sourced here"
    )
    assert finding.remedy == (
        "source /usr/local/Ascend/ascend-toolkit/set_env.sh; source /usr/local/Ascend/nnal/atb/set_env.sh"
    )


def test_cann_that_is_not_there_is_an_error(planted: Any) -> None:
    for name in list(planted.root.glob("usr/local/Ascend/ascend-toolkit/latest")):
        name.rename(name.with_name("gone"))
    assert planted.worst("CANN").found == "no CANN toolkit below /usr/local/Ascend"


def test_canns_version_is_read_from_the_newer_folder_too(planted: Any) -> None:
    (planted.root / "usr/local/Ascend/ascend-toolkit/latest").rename(planted.root / "usr/local/Ascend/cann")
    del planted.environ["ASCEND_HOME_PATH"]
    assert planted.machine().cann_version == "9.1.0"
    assert planted.worst("CANN").level is Level.OK


def test_a_driver_that_is_not_mounted_is_an_error(planted: Any) -> None:
    (planted.root / "usr/local/Ascend/driver/version.info").unlink()
    finding = planted.worst("driver")
    assert finding.level is Level.ERROR and "mount /usr/local/Ascend/driver" in finding.remedy


@pytest.mark.parametrize(("chip", "built"), [("A2", "A3"), ("A3", "A2")])
def test_an_image_for_the_other_chip_is_an_error_that_names_the_right_one(planted: Any, chip: str, built: str) -> None:
    planted.chip(chip)
    planted.package("vllm_ascend", "_build_info.py", f"__device_type__ = '{built}'\n")
    finding = planted.worst("chip and image")
    assert finding.level is Level.ERROR
    assert finding.found == f"the chips are Atlas {chip}, and vllm-ascend is for {built}"
    assert f"Dockerfile.{chip}" in finding.remedy


def test_a_soc_version_of_the_other_chip_is_an_error(planted: Any) -> None:
    planted.environ["SOC_VERSION"] = "ascend910_9391"
    assert planted.worst("chip and image").level is Level.OK
    planted.environ["SOC_VERSION"] = "ascend910b1"
    assert planted.worst("chip and image").found.endswith("SOC_VERSION is for A2")


def test_other_chips_are_said_to_be_not_validated(planted: Any) -> None:
    planted.chip("other")
    assert "not validated" in planted.worst("chip and image").found
