"""What the probes say on machines with and without devices, and with torch built for one or the other."""

from pathlib import Path

import pytest
from roll_cuda import probe


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev, a torch built for CUDA, and no variable that hides devices."""
    monkeypatch.setattr(probe, "DEVICE_FOLDER", tmp_path)
    monkeypatch.setattr(probe, "_torch_libraries", lambda: {"libtorch_cpu.so", "libtorch_cuda.so"})
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_without_a_device_file_the_answer_is_no(devices: Path) -> None:
    (devices / "nvidiactl").touch()
    assert probe.probe_cuda().reason == f"no device file {devices}/nvidia[0-9]*"
    assert probe.probe_rocm().reason == f"no device file {devices}/kfd"


def test_a_device_and_the_right_build_are_a_yes(devices: Path) -> None:
    (devices / "nvidia0").touch()
    (devices / "nvidia1").touch()
    answer = probe.probe_cuda()
    assert answer.ok
    assert answer.reason == f"{devices}/nvidia0 and 1 more, and torch is built for CUDA"


def test_a_device_with_another_build_of_torch_is_a_no_that_says_so(devices: Path) -> None:
    (devices / "kfd").touch()
    assert probe.probe_rocm().reason == f"{devices}/kfd, but the installed torch is not built for ROCm"


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_devices_are_a_no_that_names_the_variable(
    devices: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (devices / "nvidia0").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert probe.probe_cuda().reason == f"{devices}/nvidia0, but CUDA_VISIBLE_DEVICES='{value}' hides every device"


def test_the_installed_torch_is_looked_at_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe._torch_libraries()
    assert found is not None and any("torch_cpu" in name for name in found)
