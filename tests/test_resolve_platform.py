"""The platform of a run: asked for, or detected, and never plain processors by accident."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roll_core.backend import Availability, Backend
from roll_core.errors import PluginError
from roll_core.platforms.base import Platform
from roll_core.platforms.cpu import CpuPlatform
from roll_core.plugins import PluginRecord, Registry, load_plugins
from roll_core.resolve import ResolvedPlatform, resolve_platform

CORE = load_plugins({}, []).records[0]
FOUND = Availability(True, "2 devices found")
NOTHING = Availability(False, "no device file")


class DemoPlatform(Platform):
    """A device nobody has."""

    name = "demo"
    device_type = "cpu"
    ray_resource = "DEMO"
    collective_backend = "gloo"


class NpuLikePlatform(Platform):
    """Facts of a well-known platform."""

    name = "npu"
    device_type = "cpu"
    ray_resource = "NPU"
    collective_backend = "gloo"


TARGETS = {"demo": f"{__name__}:DemoPlatform", "npu": f"{__name__}:NpuLikePlatform"}


def offering(
    name: str,
    here: Availability | Callable[[], Availability],
    priority: int = 0,
    record: str = "",
    extra: str = "",
) -> PluginRecord:
    probe = here if callable(here) else lambda: here
    target = TARGETS.get(name, TARGETS["demo"])
    backend = Backend(name, target, priority=priority, probe=probe, extra=extra)
    plugin = record or {"npu": "roll_ascend"}.get(name, f"roll_{name}")
    return PluginRecord(plugin, plugin.replace("_", "-"), "1.0", "loaded", "", {"platform": (backend,)})


def decide(
    *records: PluginRecord,
    asked: str | None = None,
    env: str | None = None,
    machine: tuple[str, ...] = (),
    cluster: dict[str, float] | None = None,
) -> ResolvedPlatform:
    environ = {} if env is None else {"ROLL_PLATFORM": env}
    return resolve_platform(Registry((CORE, *records)), asked, environ, machine, cluster)


def refused(*records: PluginRecord, **given: object) -> str:
    with pytest.raises(PluginError) as error:
        decide(*records, **given)  # type: ignore[arg-type]
    return str(error.value)


def test_the_config_decides_before_the_environment_and_that_before_detection() -> None:
    demo = offering("demo", FOUND)
    assert (decide(demo, asked="cpu", env="demo").name, decide(demo, asked="cpu", env="demo").source) == (
        "cpu",
        "config",
    )
    assert (decide(demo, env="cpu").name, decide(demo, env="cpu").source) == ("cpu", "ROLL_PLATFORM")
    assert (decide(demo).name, decide(demo).source) == ("demo", "detection")


@pytest.mark.parametrize("asked", [None, "", "auto"])
def test_auto_leaves_it_to_the_environment_and_then_to_detection(asked: str | None) -> None:
    demo = offering("demo", FOUND)
    assert decide(demo, asked=asked, env="cpu").name == "cpu"
    assert decide(demo, asked=asked, env="auto").name == "demo"


def test_a_bare_machine_is_cpu_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = decide()
    assert (found.name, found.source, found.reasons) == ("cpu", "detection", ("no accelerator found",))
    assert found.load() is CpuPlatform
    assert isinstance(found.create(), CpuPlatform)
    assert found.target == "roll_core.platforms.cpu:CpuPlatform"
    assert caplog.records == []


def test_the_highest_priority_wins_and_the_reasons_name_the_others() -> None:
    found = decide(offering("demo", FOUND), offering("npu", FOUND, priority=5))
    assert found.name == "npu"
    assert found.reasons == ("2 devices found", "comes before demo (roll_demo): 2 devices found")


def test_a_tie_names_both_and_the_setting_that_chooses() -> None:
    both = offering("demo", FOUND), offering("npu", FOUND)
    assert refused(*both) == (
        "2 platforms can be used here, and none comes before the others\n"
        "  demo (roll_demo): 2 devices found\n"
        "  npu (roll_ascend): 2 devices found\n"
        "  try: `platform: demo` in the config, or ROLL_PLATFORM=demo"
    )
    assert decide(*both, asked="npu").name == "npu"


def test_a_tie_of_one_name_is_chosen_by_plugin() -> None:
    both = offering("demo", FOUND), offering("demo", FOUND, record="acme")
    assert refused(*both).endswith("try: `platform: roll_demo/demo` in the config, or ROLL_PLATFORM=roll_demo/demo")
    assert decide(*both, asked="acme/demo").resolved.record.name == "acme"


def test_a_plugin_without_a_device_leaves_cpu_and_the_reasons_say_so(caplog: pytest.LogCaptureFixture) -> None:
    def probe() -> Availability:
        raise OSError("libhal.so: cannot open shared object file")

    found = decide(offering("demo", NOTHING), offering("npu", probe))
    assert found.name == "cpu"
    assert found.reasons == (
        "no accelerator found",
        "demo (roll_demo): no device file",
        "npu (roll_ascend): its probe raised OSError: libhal.so: cannot open shared object file",
    )
    assert caplog.records == []  # Whoever asked shows the reasons; a log line would say the same again.


def test_a_failed_plugin_without_a_sign_of_its_device_is_in_the_reasons() -> None:
    broken = PluginRecord("roll_ascend", "roll-ascend", "1.0", "failed", "ImportError: stale build")
    found = decide(broken)
    assert found.name == "cpu"
    assert found.reasons == ("no accelerator found", "roll_ascend failed to load: ImportError: stale build")


def test_a_plugin_turned_off_is_no_reason_for_a_word() -> None:
    off = PluginRecord("roll_ascend", "roll-ascend", "1.0", "off", "turned off by ROLL_PLUGINS_OFF")
    assert decide(off).reasons == ("no accelerator found",)


def test_a_device_without_its_plugin_stops_the_run() -> None:
    assert refused(machine=("/dev/davinci0", "/dev/davinci1")) == (
        "there is an accelerator here that no loaded plugin can use\n"
        "  found: /dev/davinci0 and 1 more (platform npu)\n"
        "  try: pip install roll-ascend; or `platform: cpu` to run without it"
    )
    assert "(platform cuda)\n  try: pip install roll-cuda;" in refused(machine=("/dev/nvidia0",))
    assert "(platform rocm)\n  try: pip install roll-cuda;" in refused(machine=("/dev/kfd",))


def test_cpu_accepts_the_device_to_be_unused() -> None:
    assert decide(asked="cpu", machine=("/dev/davinci0",)).name == "cpu"
    assert decide(env="cpu", machine=("/dev/davinci0",), cluster={"NPU": 8}).name == "cpu"


def test_a_device_whose_plugin_failed_quotes_the_failure() -> None:
    broken = PluginRecord("roll_ascend", "roll-ascend", "1.0", "failed", "ImportError: stale build")
    assert refused(broken, machine=("/dev/davinci0",)) == (
        "there is an accelerator here that no loaded plugin can use\n"
        "  found: /dev/davinci0 (platform npu)\n"
        "  roll_ascend failed to load: ImportError: stale build\n"
        "  try: mend what is named above (`roll plugins -v`); or `platform: cpu` to run without it"
    )


def test_a_device_whose_plugin_is_off_stops_the_run_too() -> None:
    off = PluginRecord("roll_ascend", "roll-ascend", "1.0", "off", "turned off by ROLL_PLUGINS_OFF")
    assert "roll_ascend is off: turned off by ROLL_PLUGINS_OFF" in refused(off, machine=("/dev/davinci0",))


def test_a_device_whose_probe_says_no_stops_the_run_with_the_reason() -> None:
    blind = offering("npu", Availability(False, "torch_npu is not installed"))
    assert "  npu (roll_ascend): torch_npu is not installed\n" in refused(blind, machine=("/dev/davinci0",))


def test_a_cluster_with_devices_counts_like_a_machine_with_devices() -> None:
    assert refused(cluster={"CPU": 8, "NPU": 16}) == (
        "there is an accelerator here that no loaded plugin can use\n"
        "  found: 16 NPU in the Ray cluster (platform npu)\n"
        "  try: pip install roll-ascend; or `platform: cpu` to run without it"
    )
    assert "2 GPU in the Ray cluster (platform cuda)" in refused(cluster={"GPU": 2})
    assert decide(cluster={"CPU": 8, "NPU": 0}).name == "cpu"


def test_a_driver_without_a_device_uses_the_clusters() -> None:
    for asked in (None, "npu"):
        found = decide(offering("npu", NOTHING), asked=asked, cluster={"NPU": 16})
        assert found.name == "npu"
        assert "16 NPU in the Ray cluster" in found.reasons


def test_a_platform_core_never_heard_of_is_found_in_the_cluster_too() -> None:
    assert decide(offering("demo", NOTHING), cluster={"CPU": 2, "DEMO": 4}).name == "demo"


def test_an_explicit_platform_without_a_device_is_an_error_with_the_reason() -> None:
    reason = "torch_npu cannot be imported: OSError: libascend_hal.so: cannot open shared object file"
    blind = offering("npu", Availability(False, reason), extra="device")
    assert refused(blind, asked="npu") == (
        f"platform 'npu' (roll_ascend) cannot be used here: {reason}\n"
        '  try: pip install "roll-ascend[device]", or a machine or a Ray cluster with its devices, or `platform: cpu`'
    )
    assert "\n  asked by: ROLL_PLATFORM\n" in refused(blind, env="npu")


def test_another_spelling_of_a_platform_without_a_device_shows_the_same_reason() -> None:
    reason = "torch_npu cannot be imported: OSError: libascend_hal.so: cannot open shared object file"
    assert refused(offering("npu", Availability(False, reason)), env="ascend") == (
        "no platform named 'ascend'\n"
        "  installed: cpu (roll_core), npu (roll_ascend)\n"
        "  try: npu\n"
        "  asked by: ROLL_PLATFORM\n"
        f"  not usable here: npu (roll_ascend): {reason}"
    )


def test_an_explicit_platform_whose_probe_raises_is_an_error_with_what_it_raised() -> None:
    def probe() -> Availability:
        raise OSError("libhal.so")

    assert "cannot be used here: its probe raised OSError: libhal.so" in refused(offering("demo", probe), asked="demo")


def test_an_unknown_platform_is_never_replaced() -> None:
    assert refused(asked="npu").startswith("no platform named 'npu'\n  installed: cpu (roll_core)\n  try: pip install")
