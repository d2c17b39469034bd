"""Loading plugins: what a broken one is told, and that the others do not notice."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from roll_core import PLUGIN_API, __version__
from roll_core.errors import PluginError
from roll_core.plugins import PluginRecord, compare_fingerprints, load_plugins

if TYPE_CHECKING:
    from tests.conftest import PluginSite

GOOD = """
    PREAMBLE
    @hookimpl
    def roll_platforms():
        return [Backend("demo", "MODULE:DemoPlatform", "a pretend device")]
"""


def only(site: PluginSite, **environ: str) -> PluginRecord:
    (_core, record) = site.load(**environ).records
    return record


def test_core_offers_its_own_backends_without_any_plugin() -> None:
    (core,) = load_plugins({}, []).records
    assert (core.name, core.dist, core.version, core.state) == ("roll_core", "roll-core", __version__, "loaded")
    offered = {kind: [backend.name for backend in backends] for kind, backends in core.backends.items()}
    assert offered == {
        "platform": ["cpu"],
        "train": ["fsdp2_train", "fsdp2_infer"],
        "infer": ["hf_infer", "vllm", "sglang"],
        "transport": ["ray", "local"],
    }


def test_a_plugin_is_recorded_with_its_distribution_and_offers(site: PluginSite) -> None:
    module = site.install(GOOD, version="2.3")
    record = only(site)
    assert (record.name, record.dist, record.version) == ("roll_demo", "roll-demo", "2.3")
    assert (record.state, record.problem) == ("loaded", "")
    assert [backend.target for backend in record.backends["platform"]] == [f"{module}:DemoPlatform"]
    assert "demo" in [backend.name for _, backend in site.load().offers("platform")]


def test_one_broken_plugin_leaves_the_others(site: PluginSite) -> None:
    site.install("import a_module_that_is_not_there", name="roll_broken")
    site.install(GOOD)
    core, broken, good = site.load().records
    assert [core.state, broken.state, good.state] == ["loaded", "failed", "loaded"]
    assert broken.problem == "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    assert "Traceback" in broken.traceback and "roll_broken" in broken.traceback
    assert broken.backends == {}


FAULTS = {
    "exits_at_import": ("raise SystemExit('no device')", "SystemExit: no device"),
    "os_error_at_import": ("raise OSError('libhal.so: cannot open')", "OSError: libhal.so: cannot open"),
    "no_api": ("x = 1", "MODULE has no ROLL_PLUGIN_API; it needs ROLL_PLUGIN_API = 1"),
    "api_is_text": ("ROLL_PLUGIN_API = '1'", "MODULE has ROLL_PLUGIN_API = '1'; it needs ROLL_PLUGIN_API = 1"),
    "api_is_true": ("ROLL_PLUGIN_API = True", "MODULE has ROLL_PLUGIN_API = True; it needs ROLL_PLUGIN_API = 1"),
    "old_api": (
        "ROLL_PLUGIN_API = 0",
        "written for plugin API 0, this roll-core has 1; try: pip install --upgrade roll-demo",
    ),
    "new_api": (
        "ROLL_PLUGIN_API = 99",
        "written for plugin API 99, this roll-core has 1; try: pip install --upgrade roll-core",
    ),
    "misspelt_hook": (
        "PREAMBLE\n@hookimpl\ndef roll_platfroms(): return []",
        "no hook named 'roll_platfroms'; did you mean 'roll_platforms'?",
    ),
    "misspelt_hook_by_specname": (
        "PREAMBLE\n@hookimpl(specname='roll_tansports')\ndef mine(): return []",
        "no hook named 'roll_tansports'; did you mean 'roll_transports'?",
    ),
    "no_marker": (
        "PREAMBLE\ndef roll_platforms(): return []",
        "function roll_platforms is not an answer to a hook: it needs the marker @roll_core.hookimpl",
    ),
    "no_marker_and_misspelt": (
        "PREAMBLE\ndef roll_platfrom(): return []",
        "function roll_platfrom is not an answer to a hook: no such hook; did you mean 'roll_platforms'?",
    ),
    "wrapper": (
        "PREAMBLE\n@hookimpl(wrapper=True)\ndef roll_platforms(): yield",
        "roll_platforms is a wrapper; hooks are asked one plugin at a time, so there is nothing to wrap",
    ),
    "hook_raises": ("PREAMBLE\n@hookimpl\ndef roll_platforms(): return 1 / 0", "ZeroDivisionError: division by zero"),
    "returns_none": (
        "PREAMBLE\n@hookimpl\ndef roll_platforms(): pass",
        "roll_platforms returned None, not a list of Backend",
    ),
    "returns_a_tuple": (
        "PREAMBLE\n@hookimpl\ndef roll_platforms(): return ()",
        "roll_platforms returned a tuple, not a list of Backend",
    ),
    "returns_names": (
        "PREAMBLE\n@hookimpl\ndef roll_platforms(): return ['demo']",
        "roll_platforms returned a list with a str in it, not a list of Backend",
    ),
    "claims_cpu": (
        "PREAMBLE\n@hookimpl\ndef roll_platforms(): return [Backend('cpu', 'a:B')]",
        "offers a platform named 'cpu', which belongs to roll_core",
    ),
    "claims_auto": (
        "PREAMBLE\n@hookimpl\ndef roll_platforms(): return [Backend('auto', 'a:B')]",
        "offers a platform named 'auto', which means detection",
    ),
    "target_without_class": (
        "PREAMBLE\n@hookimpl\ndef roll_transports(): return [Backend('tape', 'a.b')]",
        "roll_transports: 'tape' has the target 'a.b'; it is written 'pkg.mod:Class'",
    ),
    "name_with_slash": (
        "PREAMBLE\n@hookimpl\ndef roll_transports(): return [Backend('a/b', 'a:B')]",
        "roll_transports offers the name 'a/b'; a name is text without '/'",
    ),
    "platforms_is_text": (
        "PREAMBLE\n@hookimpl\ndef roll_transports(): return [Backend('tape', 'a:B', platforms='demo')]",
        "roll_transports: 'tape' has platforms='demo'; it takes a tuple of names",
    ),
    "offered_twice": (
        "PREAMBLE\n@hookimpl\ndef roll_transports(): return [Backend('tape', 'a:B'), Backend('tape', 'a:C')]",
        "roll_transports offers 'tape' twice",
    ),
}


@pytest.mark.parametrize(("source", "problem"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_plugin_is_named_with_its_fault_and_offers_nothing(
    site: PluginSite, source: str, problem: str
) -> None:
    module = site.install(source)
    site.install(GOOD, name="roll_other")
    core, faulty, other = site.load().records
    assert faulty.state == "failed"
    assert faulty.problem == problem.replace("MODULE", module)
    assert faulty.backends == {}
    assert (core.state, other.state) == ("loaded", "loaded")


def test_a_hook_with_arguments_is_refused_and_its_other_answers_are_undone(site: PluginSite) -> None:
    site.install(
        """
        PREAMBLE
        @hookimpl
        def roll_platforms(): return [Backend("demo", "a:B")]
        @hookimpl
        def roll_transports(config): return []
        """
    )
    registry = site.load()
    assert registry.records[1].state == "failed"
    assert "roll_transports" in registry.records[1].problem and "config" in registry.records[1].problem
    assert [backend.name for _, backend in registry.offers("platform")] == ["cpu"]


def test_functions_and_classes_from_elsewhere_are_not_taken_for_hooks(site: PluginSite) -> None:
    helper = site.install("def roll_dice(): return 4", name="roll_helper_module")
    site.install(f"PREAMBLE\nimport roll_core\nfrom {helper} import roll_dice\nroll_width = 3")
    records = {record.name: record for record in site.load().records}
    assert records["roll_demo"].state == "loaded"


def test_a_plugin_must_be_a_module(site: PluginSite) -> None:
    site.install("PREAMBLE\nclass Demo: pass", attribute="Demo")
    assert only(site).problem == "the entry point names a type; a plugin is a module"


def test_two_distributions_with_one_plugin_name_both_fail_and_name_each_other(site: PluginSite) -> None:
    site.install(GOOD, dist="roll-demo")
    site.install(GOOD, dist="acme-roll")
    _core, first, second = site.load().records
    expected = "2 plugins are named 'roll_demo': acme-roll, roll-demo; uninstall all but one"
    assert [first.dist, second.dist] == ["acme-roll", "roll-demo"]
    assert [(first.state, first.problem), (second.state, second.problem)] == [("failed", expected)] * 2


def test_nobody_takes_cores_name(site: PluginSite) -> None:
    site.install(GOOD, name="roll_core", dist="acme-roll")
    core, impostor = site.load().records
    assert (core.dist, core.state) == ("roll-core", "loaded")
    assert (impostor.state, impostor.problem) == ("failed", "the plugin name 'roll_core' belongs to roll-core")


def test_an_entry_point_without_a_distribution_loads(site: PluginSite) -> None:
    module = site.install(GOOD)
    record = load_plugins({}, [EntryPoint("roll_demo", module, "roll_core")]).records[1]
    assert (record.state, record.dist, record.version) == ("loaded", "unknown", "unknown")


@pytest.mark.parametrize("listed", ["roll_demo", "roll-demo", " ROLL-DEMO , "])
def test_the_allow_list_keeps_the_plugins_it_names(site: PluginSite, listed: str) -> None:
    site.install(GOOD)
    module = site.install(GOOD, name="roll_other")
    _core, demo, other = site.load(ROLL_PLUGINS=listed).records
    assert demo.state == "loaded"
    assert (other.state, other.backends) == ("off", {})
    assert other.problem == f"not in ROLL_PLUGINS ({listed.strip(' ,')})"
    assert module not in sys.modules


def test_an_empty_allow_list_leaves_core_alone(site: PluginSite) -> None:
    site.install(GOOD)
    core, demo = site.load(ROLL_PLUGINS="").records
    assert (core.state, demo.state, demo.problem) == ("loaded", "off", "not in ROLL_PLUGINS (empty)")


def test_a_plugin_can_be_turned_off_and_core_cannot(site: PluginSite) -> None:
    module = site.install("raise RuntimeError('imported')")
    core, demo = site.load(ROLL_PLUGINS_OFF="roll_demo,roll_core").records
    assert (core.state, demo.state, demo.problem) == ("loaded", "off", "turned off by ROLL_PLUGINS_OFF")
    assert module not in sys.modules


def test_a_name_in_a_list_that_nothing_has_is_reported(site: PluginSite) -> None:
    site.install(GOOD)
    registry = site.load(ROLL_PLUGINS="roll_demmo", ROLL_PLUGINS_OFF="quux")
    found = {record.name: (record.state, record.problem) for record in registry.records}
    assert found["roll_demmo"] == ("failed", "named in ROLL_PLUGINS, not installed; did you mean 'roll_demo'?")
    assert found["quux"] == ("off", "named in ROLL_PLUGINS_OFF, not installed")


def test_loading_twice_gives_equal_registries(site: PluginSite) -> None:
    site.install(GOOD)
    site.install("raise OSError('always')", name="roll_broken")
    assert site.load() == site.load()


def test_a_trace_has_one_line_per_plugin(site: PluginSite, capsys: pytest.CaptureFixture[str]) -> None:
    site.install(GOOD)
    site.install("raise OSError('no such device')", name="roll_broken")
    site.load()
    assert capsys.readouterr().err == ""
    site.load(ROLL_TRACE_PLUGINS="1")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("roll: plugin roll_broken (roll-broken 1.0) failed in ")
    assert first.endswith(" ms: OSError: no such device")
    assert second.startswith("roll: plugin roll_demo (roll-demo 1.0) loaded in ")
    assert second.endswith(" ms: offers demo")


def test_the_fingerprint_holds_loaded_plugins_only(site: PluginSite) -> None:
    site.install(GOOD, version="2.0")
    site.install("raise OSError('always')", name="roll_broken")
    assert site.load().fingerprint() == {"roll-core": __version__, "roll-demo": "2.0"}


def test_a_node_with_other_plugins_is_named() -> None:
    same = {"roll-core": "0.1.0", "roll-demo": "1.0"}
    compare_fingerprints(same, dict(same), "node-7")
    with pytest.raises(PluginError) as error:
        compare_fingerprints(same, {"roll-core": "0.1.0", "roll-demo": "1.1", "roll-new": "3"}, "node-7")
    assert str(error.value) == (
        "node 'node-7' has other plugins than the driver\n"
        "  roll-demo: driver 1.0, node 1.1\n"
        "  roll-new: driver none, node 3\n"
        "  try: `roll plugins` on both, then install the same versions, or turn one off with ROLL_PLUGINS_OFF"
    )


def test_the_api_number_in_these_tests_is_the_current_one() -> None:
    assert PLUGIN_API == 1
