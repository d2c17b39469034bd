"""What is found on planted machines: files below another root, an environment, and installed packages."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from roll_cuda.checks import cuda_findings, rocm_findings
from roll_cuda.machine import Machine

from roll_core.findings import Finding, Level

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Jan 1 00:00:00 UTC 2025\n"
Plant = Callable[..., Machine]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Makes a machine. `packages` maps names to versions, and `pins` a name to a line of its requirements."""

    def make(
        files: Mapping[str, str] | None = None,
        packages: Mapping[str, str] | None = None,
        builds: Mapping[str, str] | None = None,
        pins: Mapping[str, str] | None = None,
        **environ: str,
    ) -> Machine:
        for path, text in (files or {}).items():
            (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "root" / path).write_text(text)
        site = tmp_path / "site"
        for name, version in (packages or {}).items():
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            requires = f"Requires-Dist: {(pins or {})[name]}\n" if name in (pins or {}) else ""
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        (site / "torch").mkdir(parents=True, exist_ok=True)
        lines = [f"{key}: Optional[str] = {(builds or {}).get(key)!r}" for key in ("cuda", "hip")]
        (site / "torch" / "version.py").write_text("\n".join(["from typing import Optional", *lines]))
        return Machine(tmp_path / "root", environ, (str(site),))

    return make


GPUS = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""}
GPUS_OF_AMD = {"dev/kfd": "", "dev/dri/renderD128": "", "sys/module/amdgpu/version": "6.12.12"}
TORCH = {"torch": "2.10.0"}


def on(findings: list[Finding], subject: str) -> list[tuple[Level, str]]:
    return [(one.level, one.found) for one in findings if one.subject == subject]


def test_a_good_machine_has_nothing_to_do(plant: Plant) -> None:
    files = GPUS | {"proc/driver/nvidia/version": DRIVER.format("570.86.15")}
    findings = cuda_findings(plant(files, TORCH | {"vllm": "0.23.0"}, {"cuda": "12.8"}, {"vllm": "torch==2.10.0"}))
    assert [one for one in findings if one.level is not Level.OK] == []
    assert on(findings, "devices") == [(Level.OK, "2: nvidia0, nvidia1")]
    assert on(findings, "driver") == [(Level.OK, "570.86.15, enough for CUDA 12.8")]
    assert on(findings, "torch build") == [(Level.OK, "torch 2.10.0, for CUDA 12.8")]
    assert on(findings, "engines and torch") == [(Level.OK, "vllm 0.23.0 beside torch 2.10.0")]


def test_a_good_machine_of_amd_has_nothing_to_do(plant: Plant) -> None:
    findings = rocm_findings(plant(GPUS_OF_AMD, TORCH, {"hip": "6.4"}))
    assert [one for one in findings if one.level is not Level.OK] == []
    assert on(findings, "devices") == [(Level.OK, "/dev/kfd and 1 of /dev/dri/renderD*")]
    assert on(findings, "driver") == [(Level.OK, "amdgpu 6.12.12")]
    assert on(findings, "torch build") == [(Level.OK, "torch 2.10.0, for ROCm 6.4")]


def test_the_open_kernel_modules_driver_is_read_too(plant: Plant) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (root@host)\n"
    findings = cuda_findings(plant(GPUS | {"proc/driver/nvidia/version": text}, TORCH, {"cuda": "13.0"}))
    assert on(findings, "driver") == [(Level.OK, "580.82.07, enough for CUDA 13.0")]


@pytest.mark.parametrize(
    ("files", "level", "found"),
    [
        ({"dev/null": ""}, Level.ERROR, "no device file /dev/nvidia*"),
        ({"dev/dxg": ""}, Level.OK, "/dev/dxg, through WSL"),
        ({"dev/nvidia0": "", "dev/nvidiactl": ""}, Level.ERROR, "1 devices, but no /dev/nvidia-uvm"),
    ],
)
def test_missing_device_files_are_errors(plant: Plant, files: dict[str, str], level: Level, found: str) -> None:
    assert on(cuda_findings(plant(files)), "devices") == [(level, found)]


def test_missing_device_files_of_amd_are_errors(plant: Plant) -> None:
    assert on(rocm_findings(plant({})), "devices") == [(Level.ERROR, "no device file /dev/kfd")]
    found = on(rocm_findings(plant({"dev/kfd": ""})), "devices")
    assert found == [(Level.ERROR, "/dev/kfd, but no /dev/dri/renderD*")]


@pytest.mark.parametrize(("driver", "cuda"), [("470.199.02", "12.8"), ("570.86.15", "13.0"), ("525.60.11", "12.1")])
def test_a_driver_older_than_torchs_cuda_is_an_error(plant: Plant, driver: str, cuda: str) -> None:
    files = GPUS | {"proc/driver/nvidia/version": DRIVER.format(driver)}
    [(level, found)] = on(cuda_findings(plant(files, TORCH, {"cuda": cuda})), "driver")
    assert level is Level.ERROR and found.startswith(f"{driver}, and torch is built for CUDA {cuda}, which needs ")


def test_devices_whose_driver_cannot_be_read_are_a_warning(plant: Plant) -> None:
    assert on(cuda_findings(plant(GPUS)), "driver") == [
        (Level.WARNING, "/proc/driver/nvidia/version cannot be read"),
    ]


def test_a_torch_for_something_else_is_an_error(plant: Plant) -> None:
    hip = plant({}, TORCH, {"hip": "6.4"})
    assert on(cuda_findings(hip), "torch build") == [(Level.ERROR, "torch 2.10.0 is built for hip 6.4, not for CUDA")]


def test_without_torch_that_is_an_error(plant: Plant) -> None:
    assert on(rocm_findings(plant({})), "torch build") == [(Level.ERROR, "torch is not installed")]


def test_an_engine_built_for_another_torch_is_an_error(plant: Plant) -> None:
    packages = {"torch": "2.13.0+cu130", "vllm": "0.23.0", "sglang": "0.6.0"}
    pins = {"vllm": "torch==2.10.0", "sglang": 'torch==2.13.0; extra == "all"'}
    assert on(cuda_findings(plant({}, packages, {"cuda": "13.0"}, pins)), "engines and torch") == [
        (Level.ERROR, "vllm 0.23.0 is built for torch 2.10.0, and torch 2.13.0+cu130 is there"),
        (Level.OK, "sglang 0.6.0 beside torch 2.13.0+cu130"),
    ]


@pytest.mark.parametrize(
    ("variable", "look", "value"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF", cuda_findings, "max_split_size_mb:64,expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", cuda_findings, "expandable_segments: true"),
        ("PYTORCH_ALLOC_CONF", rocm_findings, "expandable_segments:True"),
        ("PYTORCH_HIP_ALLOC_CONF", rocm_findings, "expandable_segments:True"),
    ],
)
def test_expandable_segments_for_every_process_are_an_error(
    plant: Plant, variable: str, look: Callable[[Machine], list[Finding]], value: str
) -> None:
    [(level, found)] = on(look(plant(**{variable: value})), "expandable segments")
    assert level is Level.ERROR
    assert found == f"{variable}={value} reaches engines too, and one that sleeps refuses to start with it"


def test_expandable_segments_of_another_allocator_or_switched_off_are_none(plant: Plant) -> None:
    machine = plant(
        PYTORCH_HIP_ALLOC_CONF="expandable_segments:True", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"
    )
    [(level, _)] = on(cuda_findings(machine), "expandable segments")
    assert level is Level.OK


@pytest.mark.parametrize(
    ("name", "value", "level", "found"),
    [
        (
            "NCCL_P2P_DISABLE",
            "1",
            Level.WARNING,
            "NCCL_P2P_DISABLE=1: devices of one host exchange through host memory",
        ),
        ("CUDA_LAUNCH_BLOCKING", "1", Level.WARNING, "CUDA_LAUNCH_BLOCKING=1: every kernel is waited for"),
        ("NCCL_BLOCKING_WAIT", "1", Level.WARNING, "NCCL_BLOCKING_WAIT is the name before torch 2.2"),
        ("NCCL_DEBUG", "info", Level.WARNING, "NCCL_DEBUG=info writes lines for every group"),
        ("NCCL_CUMEM_ENABLE", "1", Level.ERROR, "NCCL_CUMEM_ENABLE=1, and vLLM sets 0 in its workers"),
        ("NCCL_SOCKET_IFNAME", "bond", Level.ERROR, "NCCL_SOCKET_IFNAME=bond, and this host has no interface bond"),
        ("NCCL_SOCKET_IFNAME", "=eth", Level.ERROR, "NCCL_SOCKET_IFNAME==eth, and this host has no interface eth"),
    ],
)
def test_variables_that_slow_or_miss_are_named(plant: Plant, name: str, value: str, level: Level, found: str) -> None:
    [(seen, text)] = on(cuda_findings(plant({"sys/class/net/eth0": ""}, **{name: value})), "variables")
    assert seen is level and text.startswith(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_CUMEM_ENABLE", "0"),
        ("NCCL_SOCKET_IFNAME", "eth"),
        ("NCCL_SOCKET_IFNAME", "=eth0"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
    ],
)
def test_harmless_variables_are_left_alone(plant: Plant, name: str, value: str) -> None:
    findings = on(cuda_findings(plant({"sys/class/net/eth0": ""}, **{name: value})), "variables")
    assert findings == [(Level.OK, "none that slows a run or misses its reader")]


def test_a_list_below_the_list_of_devices_is_a_warning(plant: Plant) -> None:
    [(level, found)] = on(rocm_findings(plant(ROCR_VISIBLE_DEVICES="4,5")), "lists of visible devices")
    assert level is Level.WARNING and found.startswith("ROCR_VISIBLE_DEVICES=4,5: ")


def test_whatever_is_not_well_says_what_to_do(plant: Plant) -> None:
    machine = plant({}, NCCL_CUMEM_ENABLE="1", NCCL_IB_DISABLE="1", ROCR_VISIBLE_DEVICES="0", NCCL_BLOCKING_WAIT="1")
    for finding in (*cuda_findings(machine), *rocm_findings(machine)):
        assert bool(finding.remedy) == (finding.level is not Level.OK), finding
