"""What is said of plugins, all of them, and of platforms: those whose device shows, or the one asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from roll_core.doctor.installed import plugin_findings
from roll_core.doctor.platforms import choice_findings, platform_findings, relevant_platforms
from roll_core.findings import Finding, Level
from roll_core.plugins import PluginRecord, Registry
from roll_core.resolve import Resolved

if TYPE_CHECKING:
    from tests.conftest import PluginSite

DEMO = """
    PREAMBLE
    from roll_core.platforms import Platform
    import os

    @hookimpl
    def roll_platforms():
        probe = lambda: Availability(bool(os.environ.get("DEMO_DEVICES")), "DEMO_DEVICES says so")
        return [Backend("demo", "MODULE:DemoPlatform", "a pretend device", probe=probe)]

    class DemoPlatform(Platform):
        name = device_type = "demo"
        ray_resource = "DEMO"
        visible_devices_env = "DEMO_DEVICES"
        collective_backend = "gloo"

        def device_count(self):
            if os.environ["DEMO_DEVICES"] == "broken":
                raise RuntimeError("the demo device does not answer")
            return 2
"""


def asked(registry: Registry, name: str) -> Resolved:
    [found] = relevant_platforms(registry, name, {}, [])
    return found


def by_subject(resolved: Resolved) -> dict[str, Finding]:
    return {finding.subject: finding for finding in platform_findings(resolved, os.environ)}


def test_only_platforms_with_a_device_or_asked_for_are_looked_at(
    site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install(DEMO)
    registry = site.load()
    monkeypatch.delenv("DEMO_DEVICES", raising=False)
    assert relevant_platforms(registry, None, {}, []) == []
    assert [one.backend.name for one in relevant_platforms(registry, None, {"ROLL_PLATFORM": "demo"}, [])] == ["demo"]
    assert asked(registry, "demo").backend.name == "demo"
    monkeypatch.setenv("DEMO_DEVICES", "0")
    assert [one.backend.name for one in relevant_platforms(registry, None, {}, [])] == ["demo"]


def test_a_platform_whose_device_file_is_here_is_looked_at_though_it_cannot_be_used(site: PluginSite) -> None:
    site.install(DEMO.replace('"demo"', '"npu"', 1))
    found = relevant_platforms(site.load(), None, {}, ["/dev/davinci0"])
    assert [one.backend.name for one in found] == ["npu"]


def test_devices_are_listed_and_counted(site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install(DEMO)
    monkeypatch.setenv("DEMO_DEVICES", "4,5")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    found = by_subject(asked(site.load(), "demo"))
    assert found["visible devices"].found == "2: 4,5; a config's device 0 is 4"
    assert found["devices of demo"].found == "2 devices can be used"
    assert max(one.level for one in found.values()) == Level.OK


def test_devices_that_cannot_be_opened_are_an_error(site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install(DEMO)
    monkeypatch.setenv("DEMO_DEVICES", "broken")
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    finding = by_subject(asked(site.load(), "demo"))["devices of demo"]
    assert finding.level == Level.ERROR
    assert finding.found == "fails: RuntimeError: the demo device does not answer"


@pytest.mark.parametrize(("value", "found"), [("0,1,0", "0,1,0 has an id twice"), (" ", "none: DEMO_DEVICES empty")])
def test_a_list_of_devices_that_cannot_be_meant_is_an_error(site: PluginSite, value: str, found: str) -> None:
    site.install(DEMO)
    findings = platform_findings(asked(site.load(), "demo"), {"DEMO_DEVICES": value})
    [visible] = [one for one in findings if one.subject == "visible devices"]
    assert (visible.level, visible.found) == (Level.ERROR, found)


def test_findings_that_raise_are_a_finding(site: PluginSite) -> None:
    site.install(DEMO + '\n        def findings(self):\n            raise OSError("no driver file")\n')
    last = list(platform_findings(asked(site.load(), "demo"), {}))[-1]
    assert (last.level, last.found) == (Level.ERROR, "its findings() raised OSError: no driver file")


def test_broken_plugins_are_errors_with_what_to_do_and_the_others_are_fine(site: PluginSite) -> None:
    site.install(DEMO)
    site.install(DEMO.replace("MODULE:DemoPlatform", "MODULE:DemoPlatfrom"), name="roll_typo")
    site.install(DEMO.replace("MODULE:DemoPlatform", "MODULE_moved.inner:DemoPlatform"), name="roll_moved")
    site.install("import a_module_that_is_not_there", name="roll_broken")
    found = {one.subject: one for one in plugin_findings(site.load())}
    assert found["roll_demo (roll-demo 1.0)"] == Finding(Level.OK, "roll_demo (roll-demo 1.0)", "brings platform demo")
    assert "has no 'DemoPlatfrom'" in found["roll_typo (roll-typo 1.0)"].found
    moved = found["roll_moved (roll-moved 1.0)"]
    assert moved.found.startswith("platform 'demo' cannot be loaded: there is no module 'roll_moved_")
    assert moved.remedy.startswith("pip install --force-reinstall roll-moved")
    broken = found["roll_broken (roll-broken 1.0)"]
    assert broken.found == "failed to load: ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    assert "ROLL_PLUGINS_OFF=roll_broken" in broken.remedy
    assert {one.level for one in found.values()} == {Level.OK, Level.ERROR}


def test_plugins_of_one_name_are_told_to_go() -> None:
    problem = "2 plugins are named 'demo': a, b; uninstall all but one"
    [_, finding] = plugin_findings(
        Registry(
            (PluginRecord("roll_core", "roll-core", "1", "loaded"), PluginRecord("demo", "a", "1", "failed", problem))
        )
    )
    assert finding.remedy == "pip uninstall a, or ROLL_PLUGINS_OFF=demo to go without it"


def test_an_accelerator_without_its_plugin_is_an_error_with_the_pip_command(site: PluginSite) -> None:
    [finding] = choice_findings(site.load(), {}, ["/dev/davinci0"])
    assert finding.level == Level.ERROR
    assert finding.remedy == "pip install roll-ascend; or `platform: cpu` to run without it"


def test_the_platform_of_a_run_is_told_with_its_reason(site: PluginSite) -> None:
    [finding] = choice_findings(site.load(), {"ROLL_PLATFORM": "cpu"}, [])
    assert (finding.level, finding.found.partition(":")[0]) == (Level.OK, "cpu")
