"""What is special about roll_demo; what every plugin must keep is run with

pytest --pyargs roll_core.testing.suite --roll-plugin roll_demo
"""

import pytest
from roll_demo.platform import DemoPlatform
from roll_demo.plugin import probe_devices

from roll_core.findings import Level


def test_devices_are_there_where_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_DEVICES", "3")
    assert probe_devices().ok and DemoPlatform().device_count() == 3
    monkeypatch.setenv("DEMO_VISIBLE_DEVICES", "2,0")
    assert DemoPlatform().device_count() == 2
    monkeypatch.delenv("DEMO_DEVICES")
    assert not probe_devices().ok and probe_devices().reason == "DEMO_DEVICES is 0"


def test_a_number_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_DEVICES", "two")
    [finding] = DemoPlatform().findings()
    assert finding.level is Level.ERROR and finding.remedy == "export DEMO_DEVICES=2"
