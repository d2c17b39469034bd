"""What roll_ascend uses is in the published torch-npu and vllm-ascend, read as source and never installed.

What is used is collected from our own source. `make test-registry` runs these; they download about 140 MB once.
"""

from __future__ import annotations

import re
from functools import cache

import pytest
from roll_ascend.env import CANN, HCCL, HOST, READ_BY_NOBODY, TORCH_NPU, VARIABLES, VLLM_ASCEND
from roll_ascend.platform import NpuPlatform

from tests.registry.source_index import SourceIndex
from tests.registry.used_names import ASCEND, CORE, device_module_uses, dotted_uses, imported_modules
from tests.registry.wheels import RELEASES, Release, wheel_of

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]

OF_TORCH_NPU = [release for release in RELEASES if release.package == "torch-npu"]
OF_VLLM_ASCEND = [release for release in RELEASES if release.package == "vllm-ascend"]


@cache
def index(release: Release) -> SourceIndex:
    """A wheel is read once."""
    return SourceIndex(wheel_of(release))


@cache
def read_by(release: Release) -> frozenset[str]:
    """Our variables that a wheel holds as text."""
    return frozenset(index(release).readers({*VARIABLES, *READ_BY_NOBODY}))


@pytest.mark.parametrize("release", OF_TORCH_NPU, ids=str)
def test_torch_npu_registers_itself_as_torchs_module_of_the_device(release: Release) -> None:
    device = NpuPlatform.device_type
    assert index(release).says(rf"_register_device_module\(\s*[\"']{device}[\"'],\s*torch_npu\.npu\s*\)")


@pytest.mark.parametrize("release", OF_TORCH_NPU, ids=str)
def test_every_name_of_torch_npu_that_core_and_plugin_use_is_there_and_takes_our_call(release: Release) -> None:
    uses = device_module_uses(CORE, ASCEND) + dotted_uses("torch.npu", ASCEND) + dotted_uses("torch_npu.npu", ASCEND)
    assert {"set_device", "mem_get_info", "set_rng_state", "device_count"} <= {use.name for use in uses}
    wrong = []
    for use in uses:
        found = index(release).find("torch_npu.npu", use.name.partition(".")[0])
        if found is None:
            wrong.append(f"{use.where}: torch.npu has no {use.name}")
        elif use.call is not None and not found.accepts(*use.call):
            wrong.append(f"{use.where}: torch.npu.{use.name} does not take {use.call}")
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_every_module_that_is_imported_or_looked_for_is_there(release: Release) -> None:
    package = release.package.replace("-", "_")
    uses = imported_modules(package, CORE, ASCEND)
    assert uses
    assert [use for use in uses if not index(release).has_module(use.name)] == []


@pytest.mark.parametrize("release", OF_TORCH_NPU, ids=str)
def test_the_collective_backend_is_registered_under_our_name(release: Release) -> None:
    assert index(release).says(rf"register_backend\(\s*[\"']{NpuPlatform.collective_backend}[\"']")


@pytest.mark.parametrize("release", OF_TORCH_NPU, ids=str)
def test_torch_npu_reads_the_variables_said_to_be_its_own(release: Release) -> None:
    assert sorted({one.name for one in TORCH_NPU} - read_by(release)) == []


@pytest.mark.parametrize("release", OF_VLLM_ASCEND, ids=str)
def test_vllm_ascend_reads_the_variables_said_to_be_its_own(release: Release) -> None:
    assert sorted({one.name for one in VLLM_ASCEND} - read_by(release)) == []
    assert index(release).find("vllm_ascend.envs", "env_variables") is not None


def test_a_variable_that_no_wheel_reads_belongs_to_libraries_outside_or_is_marked_as_dead() -> None:
    """CANN's and HCCL's own libraries are not on the registry, and the host's variables have readers elsewhere."""
    alive = frozenset().union(*(read_by(release) for release in RELEASES))
    unread = set(VARIABLES) - alive
    outside = {one.name for one in (*HCCL, *CANN, *HOST)}
    dead = sorted(unread - outside)
    assert dead == [], f"read by no wheel, to be moved to READ_BY_NOBODY: {dead}"


def test_a_variable_marked_as_dead_is_read_by_no_wheel() -> None:
    readers = {name: [str(one) for one in RELEASES if name in read_by(one)] for name in READ_BY_NOBODY}
    assert {name: found for name, found in readers.items() if found} == {}


@pytest.mark.parametrize("release", OF_VLLM_ASCEND, ids=str)
def test_options_that_replace_dead_variables_are_read(release: Release) -> None:
    wanted = {
        key
        for remedy in READ_BY_NOBODY.values()
        if remedy.startswith("additional_config")
        for key in re.findall(r"(\w+):", remedy)
    } - {"additional_config"}
    assert wanted
    assert sorted(wanted - index(release).texts) == []


@pytest.mark.parametrize("release", OF_VLLM_ASCEND, ids=str)
def test_the_record_of_the_chip_that_checks_read_is_there(release: Release) -> None:
    assert index(release).find("vllm_ascend._build_info", "__device_type__") is not None
