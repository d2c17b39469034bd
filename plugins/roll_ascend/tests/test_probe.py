"""What the probe says on machines with and without devices and torch_npu."""

from pathlib import Path

import pytest
from roll_ascend import probe


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev, and no variable that hides devices."""
    monkeypatch.setattr(probe, "DEVICE_FOLDER", tmp_path / "dev")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


def torch_npu_that(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for torch_npu, found by this process and by those it starts."""
    (folder / "torch_npu.py").write_text(body)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_without_torch_npu_the_answer_is_no(devices: Path) -> None:
    assert probe.probe_npu().reason == f"torch_npu is not installed (no device file {devices}/davinci*)"
    (devices / "davinci0").touch()
    (devices / "davinci_manager").touch()
    answer = probe.probe_npu()
    assert not answer.ok
    assert answer.reason == f"torch_npu is not installed (1 device files {devices}/davinci0 ...)"


def test_devices_and_torch_npu_are_a_yes_without_importing_it(
    devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_npu_that("raise OSError('imported')", tmp_path, monkeypatch)
    for card in range(16):
        (devices / f"davinci{card}").touch()
    assert probe.probe_npu().ok


def test_an_empty_list_of_visible_devices_hides_them(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "")
    (devices / "davinci0").touch()
    answer = probe.probe_npu()
    assert not answer.ok and "ASCEND_RT_VISIBLE_DEVICES is empty" in answer.reason


def test_a_torch_npu_that_cannot_be_imported_is_quoted(
    devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_npu_that("raise OSError('libascend_hal.so: cannot open shared object file')", tmp_path, monkeypatch)
    answer = probe.probe_npu()
    assert not answer.ok
    assert answer.reason == (
        f"no device file {devices}/davinci*, and torch_npu cannot be imported: "
        "OSError: libascend_hal.so: cannot open shared object file"
    )


@pytest.mark.parametrize("count", [0, 2])
def test_without_device_files_torch_npu_is_asked_to_count(
    devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stand_in = f"import torch, types; torch.npu = types.SimpleNamespace(device_count=lambda: {count})"
    torch_npu_that(stand_in, tmp_path, monkeypatch)
    answer = probe.probe_npu()
    assert answer.ok == (count > 0)
    assert answer.reason.endswith(f"torch_npu counts {count} devices")
