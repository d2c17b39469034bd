"""From the plugin to the platform of a run, with torch_npu in the states that people meet."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from roll_ascend import probe

from roll_core.errors import PluginError
from roll_core.plugins import Registry, load_plugins
from roll_core.resolve import resolve_platform

BROKEN = "raise OSError('libascend_hal.so: cannot open shared object file')"
CAUSE = "torch_npu cannot be imported: OSError: libascend_hal.so: cannot open shared object file"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """This plugin alone, on a machine without devices whose torch_npu cannot be imported."""
    (tmp_path / "torch_npu.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(probe, "DEVICE_FOLDER", tmp_path)
    return load_plugins({}, [EntryPoint("roll_ascend", "roll_ascend.plugin", "roll_core")])


def test_a_broken_torch_npu_leaves_cpu_to_detection_which_says_why(registry: Registry) -> None:
    found = resolve_platform(registry, "auto", {}, machine=())
    assert found.name == "cpu"
    (said,) = [reason for reason in found.reasons if "npu (roll_ascend)" in reason]
    assert CAUSE in said


@pytest.mark.parametrize("asked", ["npu", "ascend"])
def test_who_asks_for_the_npu_gets_the_cause_and_never_cpu(registry: Registry, asked: str) -> None:
    for given, environ in ((asked, {}), (None, {"ROLL_PLATFORM": asked})):
        with pytest.raises(PluginError) as error:
            resolve_platform(registry, given, environ, machine=())
        assert CAUSE in str(error.value)


def test_a_device_that_torch_npu_cannot_use_is_no_reason_for_cpu(registry: Registry) -> None:
    with pytest.raises(PluginError) as error:
        resolve_platform(registry, None, {}, machine=("/dev/davinci0",))
    assert CAUSE in str(error.value)


def test_a_driver_without_devices_uses_those_of_the_cluster(registry: Registry) -> None:
    found = resolve_platform(registry, None, {}, machine=(), ray_resources={"CPU": 64, "NPU": 16})
    assert (found.name, found.load().collective_backend) == ("npu", "hccl")
