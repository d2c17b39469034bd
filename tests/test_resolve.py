"""A name in a config becomes one backend, or a message that says what there is and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roll_core.backend import Availability, Backend, Kind
from roll_core.errors import PluginError
from roll_core.platforms.cpu import CpuPlatform
from roll_core.plugins import PluginRecord, Registry, load_plugins
from roll_core.resolve import Resolved, resolve_backend

if TYPE_CHECKING:
    from tests.conftest import PluginSite

CORE = load_plugins({}, []).records[0]


def plugin(name: str, kind: Kind, *backends: Backend) -> PluginRecord:
    return PluginRecord(name, name.replace("_", "-"), "1.0", "loaded", "", {kind: backends})


def failed(name: str, problem: str) -> PluginRecord:
    return PluginRecord(name, name.replace("_", "-"), "1.0", "failed", problem)


def refused(registry: Registry, kind: Kind, name: str, platform: str = "") -> str:
    with pytest.raises(PluginError) as error:
        resolve_backend(registry, kind, name, platform)
    return str(error.value)


def test_a_name_of_cores_own_resolves_and_loads() -> None:
    resolved = resolve_backend(Registry((CORE,)), "platform", "cpu")
    assert str(resolved) == "cpu (roll_core)"
    assert resolved.load() is CpuPlatform


def test_a_well_known_name_that_nobody_offers_says_what_to_install() -> None:
    registry = Registry((CORE, plugin("roll_cuda", "platform", Backend("cuda", "a:B"))))
    assert refused(registry, "platform", "ascend") == (
        "no platform named 'ascend'\n  installed: cpu (roll_core), cuda (roll_cuda)\n  try: pip install roll-ascend"
    )


@pytest.mark.parametrize(
    ("asked", "package"),
    [("npu", "roll-ascend"), ("Huawei", "roll-ascend"), ("nvidia", "roll-cuda"), ("gpu", "roll-cuda")],
)
def test_other_spellings_are_known_too(asked: str, package: str) -> None:
    assert refused(Registry((CORE,)), "platform", asked).endswith(f"\n  try: pip install {package}")


def test_another_spelling_of_an_installed_name_says_the_name() -> None:
    registry = Registry((CORE, plugin("roll_cuda", "platform", Backend("cuda", "a:B"))))
    assert refused(registry, "platform", "nvidia").endswith("cuda (roll_cuda)\n  try: cuda")


def test_a_misspelt_name_gets_the_nearest_one() -> None:
    assert refused(Registry((CORE,)), "train", "fsdp_train") == (
        "no training strategy named 'fsdp_train'; did you mean 'fsdp2_train'?\n"
        "  installed: fsdp2_train (roll_core), fsdp2_infer (roll_core)"
    )
    assert refused(Registry((CORE,)), "platform", "nvidea") == (
        "no platform named 'nvidea'; did you mean 'cuda'?\n  installed: cpu (roll_core)\n  try: pip install roll-cuda"
    )


def test_a_strange_name_lists_what_there_is() -> None:
    assert refused(Registry((CORE,)), "transport", "pigeon") == (
        "no transport named 'pigeon'\n  installed: ray (roll_core), local (roll_core)"
    )
    assert refused(Registry((CORE,)), "patch", "pigeon") == "no model patch named 'pigeon'\n  installed: none"


def test_a_name_left_to_plugins_says_so() -> None:
    assert "megatron_train: is left to plugins" in refused(Registry((CORE,)), "train", "megatron_train")


def test_a_failed_plugin_is_quoted_in_the_error_it_explains() -> None:
    registry = Registry((CORE, failed("roll_ascend", "OSError: libhal.so: cannot open")))
    assert refused(registry, "platform", "npu") == (
        "no platform named 'npu'\n"
        "  installed: cpu (roll_core)\n"
        "  roll_ascend failed to load: OSError: libhal.so: cannot open\n"
        "  try: `roll plugins -v`"
    )


def test_a_plugin_that_is_off_is_quoted_too() -> None:
    off = PluginRecord("roll_ascend", "roll-ascend", "1.0", "off", "turned off by ROLL_PLUGINS_OFF")
    assert "  roll_ascend is off: turned off by ROLL_PLUGINS_OFF\n" in refused(Registry((CORE, off)), "platform", "npu")


def test_an_exact_platform_beats_a_generic_backend() -> None:
    special = plugin("roll_demo", "infer", Backend("hf_infer", "a:Special", platforms=("demo", "demo2")))
    registry = Registry((CORE, special))
    assert resolve_backend(registry, "infer", "hf_infer", "demo").record.name == "roll_demo"
    assert resolve_backend(registry, "infer", "hf_infer", "cpu").record.name == "roll_core"
    assert resolve_backend(registry, "infer", "hf_infer").record.name == "roll_core"


def test_two_exact_matches_are_an_error_that_shows_both_whatever_their_priority() -> None:
    registry = Registry(
        (
            CORE,
            plugin("roll_a", "infer", Backend("hf_infer", "a:A", platforms=("demo",), priority=9)),
            plugin("roll_b", "infer", Backend("hf_infer", "b:B", platforms=("demo",))),
        )
    )
    assert refused(registry, "infer", "hf_infer", "demo") == (
        "2 plugins offer the inference strategy 'hf_infer' for platform 'demo'\n"
        "  roll_a (roll-a 1.0): a:A\n"
        "  roll_b (roll-b 1.0): b:B\n"
        "  try: roll_a/hf_infer or roll_b/hf_infer"
    )
    assert resolve_backend(registry, "infer", "roll_b/hf_infer", "demo").backend.target == "b:B"


def test_two_generic_matches_are_an_error_and_a_plugins_name_picks_one() -> None:
    registry = Registry((CORE, plugin("roll_b", "infer", Backend("hf_infer", "b:B"))))
    assert refused(registry, "infer", "hf_infer", "cpu") == (
        "2 plugins offer the inference strategy 'hf_infer'\n"
        f"  roll_core (roll-core {CORE.version}): roll_core.inference.hf:HfInferStrategy\n"
        "  roll_b (roll-b 1.0): b:B\n"
        "  try: roll_core/hf_infer or roll_b/hf_infer"
    )
    assert resolve_backend(registry, "infer", "roll-b/hf_infer").backend.target == "b:B"


def test_a_backend_for_other_platforms_says_for_which() -> None:
    registry = Registry((CORE, plugin("roll_demo", "infer", Backend("tape", "a:B", platforms=("demo", "demo2")))))
    assert refused(registry, "infer", "tape", "cpu") == (
        "no inference strategy named 'tape' for platform 'cpu'\n  tape (roll_demo) is for: demo, demo2"
    )


def test_an_unknown_plugin_before_the_slash() -> None:
    registry = Registry((CORE, failed("roll_demo", "OSError: gone")))
    assert refused(registry, "infer", "roll_dmo/hf_infer") == (
        "no plugin named 'roll_dmo', asked by 'roll_dmo/hf_infer'; did you mean 'roll_demo'?\n"
        "  loaded: roll_core\n"
        "  roll_demo failed to load: OSError: gone"
    )
    assert "'roll_demo/x'\n  loaded: roll_core\n  roll_demo failed" in refused(registry, "infer", "roll_demo/x")


def test_a_name_its_plugin_does_not_offer_lists_what_that_plugin_offers() -> None:
    registry = Registry((CORE, plugin("roll_demo", "infer", Backend("tape", "a:B"))))
    assert refused(registry, "infer", "roll_demo/hf_infer") == (
        "no inference strategy named 'roll_demo/hf_infer'\n  installed: tape (roll_demo)"
    )


def from_source(site: PluginSite, source: str, target: str = "MODULE:DemoPlatform", extra: str = "") -> Resolved:
    module = site.install(source)
    backend = Backend("demo", target.replace("MODULE", module), extra=extra)
    return Resolved("platform", plugin("roll_demo", "platform", backend), backend)


def load_error(resolved: Resolved) -> str:
    with pytest.raises(PluginError) as error:
        resolved.load()
    return str(error.value)


def test_a_missing_library_is_named_with_the_command_that_installs_it(site: PluginSite) -> None:
    resolved = from_source(site, "import libdemo", extra="device")
    assert load_error(resolved) == (
        "platform 'demo' (roll_demo) needs the module 'libdemo', which is not installed\n"
        f"  target: {resolved.backend.target}\n"
        '  try: pip install "roll-demo[device]"'
    )
    assert load_error(from_source(site_again(site), "import libdemo")).endswith("try: pip install --upgrade roll-demo")


def site_again(site: PluginSite) -> PluginSite:
    """The same site with its metadata removed, so that a plugin of the same name can be installed."""
    for info in site.folder.glob("*.dist-info"):
        info.rename(info.with_suffix(".removed"))
    return site


def test_a_module_of_the_target_that_is_not_there_is_the_plugins_own_fault() -> None:
    backend = Backend("demo", "roll_core.no_such_module:Demo")
    assert load_error(Resolved("platform", plugin("roll_demo", "platform", backend), backend)) == (
        "platform 'demo' (roll_demo) cannot be loaded: there is no module 'roll_core.no_such_module'\n"
        "  target: roll_core.no_such_module:Demo\n"
        "  try: pip install --force-reinstall roll-demo"
    )


def test_a_library_that_cannot_be_imported_is_quoted(site: PluginSite) -> None:
    message = load_error(from_source(site, "raise OSError('libhal.so: cannot open shared object file')"))
    assert "cannot be imported: OSError: libhal.so: cannot open shared object file" in message


def test_a_missing_class_gets_the_nearest_one(site: PluginSite) -> None:
    resolved = from_source(site, "class DemoPlatfrom: pass")
    module = resolved.backend.target.partition(":")[0]
    assert load_error(resolved) == (
        f"platform 'demo' (roll_demo) cannot be loaded: {module} has no 'DemoPlatform'; did you mean 'DemoPlatfrom'?"
    )


def test_a_class_of_another_kind_is_refused(site: PluginSite) -> None:
    resolved = from_source(site, "class DemoPlatform: pass")
    assert load_error(resolved) == (
        f"platform 'demo' (roll_demo) cannot be used: {resolved.backend.target} is not a Platform"
    )


def availability(probe: object) -> Availability:
    backend = Backend("demo", "a:B", probe=probe)  # type: ignore[arg-type]
    return Resolved("platform", plugin("roll_demo", "platform", backend), backend).availability()


def test_a_probe_that_raises_anything_says_no_with_what_it_raised() -> None:
    def probe() -> Availability:
        raise OSError("libhal.so: cannot open")

    assert availability(probe) == Availability(False, "its probe raised OSError: libhal.so: cannot open")


def test_a_probe_that_returns_something_else_says_no() -> None:
    assert availability(lambda: True) == Availability(False, "its probe returned a bool, not an Availability")


@pytest.mark.parametrize("kind", ["platform", "train", "infer", "transport", "patch"])
def test_every_backend_of_core_loads(kind: Kind) -> None:
    for record, backend in Registry((CORE,)).offers(kind):
        assert Resolved(kind, record, backend).load().__name__ == backend.target.partition(":")[2]
