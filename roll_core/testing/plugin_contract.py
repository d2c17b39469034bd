"""What every plugin must keep, whatever it offers, as tests to run on yours.

class TestMyPlugin(PluginContract):
    plugin = "roll_pretend"
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from functools import cache
from importlib import metadata
from typing import ClassVar

import pytest

from roll_core import PLUGIN_API, Availability
from roll_core.backend import HOOK_OF_KIND, NOUN_OF_KIND, always_available
from roll_core.errors import PluginError
from roll_core.plugins import CORE_NAME, GROUP, PluginRecord, Registry, load_plugins, same_name
from roll_core.resolve import Resolved, resolve_backend
from roll_core.testing.contract import Contract, listed
from roll_core.testing.fresh import HEAVY, in_fresh_interpreter, tops

PROBE_SECONDS = 5.0
"""A probe that finds nothing must say so at once; `roll plugins` asks all of them."""


class PluginContract(Contract):
    """It loads, imports nothing heavy, and what it offers can be found, asked and installed."""

    plugin: ClassVar[str]
    """Name of the entry point."""

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """A case per backend that the plugin offers."""
        if "resolved" in metafunc.fixturenames:
            offers = offers_of(cls.plugin)
            metafunc.parametrize("resolved", offers, ids=[f"{one.kind} {one.backend.name}" for one in offers])

    @pytest.fixture(scope="class")
    @classmethod
    def record(cls) -> PluginRecord:
        """What became of the plugin when it was loaded."""
        return record_of(cls.plugin)

    @pytest.fixture(scope="class")
    @classmethod
    def module(cls, record: PluginRecord) -> str:
        """Name of the module that is the plugin."""
        return module_of(record.name)

    def test_it_loads(self, record: PluginRecord) -> None:
        assert record.state == "loaded", f"{record.name} {record.state}: {record.problem}"

    def test_it_is_written_for_this_api(self, module: str) -> None:
        found = getattr(importlib.import_module(module), "ROLL_PLUGIN_API", None)
        assert found == PLUGIN_API, f"{module} has ROLL_PLUGIN_API = {found!r}, this roll-core has {PLUGIN_API}"

    def test_its_module_imports_the_standard_library_and_roll_core_only(self, module: str) -> None:
        new = in_fresh_interpreter(
            "import sys, roll_core.plugins\nbefore = set(sys.modules)\n"
            f"import {module}\nresult = sorted(set(sys.modules) - before)"
        )
        strangers = tops(new) - sys.stdlib_module_names - {"roll_core", module.partition(".")[0]}
        assert not strangers, (
            f"importing {module} imports {listed(sorted(strangers))}; "
            "a plugin's module imports the standard library and roll_core, what is heavy is for its targets"
        )

    def test_importing_it_changes_nothing(self, module: str) -> None:
        # Written variables are watched: this process, whose environment is handed down, has loaded the plugin already.
        changed = in_fresh_interpreter(
            "import os, sys, threading, roll_core.plugins\nwritten = []\n"
            "sys.addaudithook(lambda event, given: written.append(os.fsdecode(given[0])) "
            "if event in ('os.putenv', 'os.unsetenv') else None)\n"
            f"import {module}\nresult = [sorted(set(written)), threading.active_count() - 1]"
        )
        assert changed[0] == [], f"importing {module} changes the environment: {listed(changed[0])}"
        assert changed[1] == 0, f"importing {module} starts {changed[1]} threads"

    def test_its_probes_are_cheap(self, module: str, record: PluginRecord) -> None:
        assert record.state == "loaded", record.problem
        found = in_fresh_interpreter(
            "import sys, time, importlib\nfrom roll_core.backend import HOOK_OF_KIND\n"
            f"module = importlib.import_module({module!r})\nresult = []\n"
            "for hook in HOOK_OF_KIND.values():\n"
            "    for backend in getattr(module, hook, list)():\n"
            "        before, began = set(sys.modules), time.perf_counter()\n"
            "        ok = backend.probe().ok\n"
            "        took = time.perf_counter() - began\n"
            "        result.append([backend.name, ok, took, sorted(set(sys.modules) - before)])"
        )
        for name, is_here, seconds, new in found:
            heavy = tops(new) & HEAVY
            assert not heavy, f"the probe of '{name}' imports {listed(sorted(heavy))}; it may look at files and names"
            assert is_here or seconds < PROBE_SECONDS, f"the probe of '{name}' took {seconds:.1f} s to say no"

    def test_its_hooks_answer_alike_each_time(self, module: str) -> None:
        plugin = importlib.import_module(module)
        for hook in HOOK_OF_KIND.values():
            ask = getattr(plugin, hook, list)
            first, again = ([replace(backend, probe=always_available) for backend in ask()] for _ in range(2))
            assert first == again, f"{hook} gives another answer when asked again"

    def test_it_says_that_it_needs_roll_core(self, record: PluginRecord) -> None:
        if record.name == CORE_NAME:
            pytest.skip("roll_core itself")
        requirements = _distribution(record).requires or []
        names = [requirement.split(";")[0].strip() for requirement in requirements]
        assert any(same_name(name[:9], "roll-core") for name in names), (
            f"{record.dist} does not depend on roll-core; its dependencies are: {listed(names)}"
        )

    def test_extras_are_those_of_its_package(self, record: PluginRecord) -> None:
        known = _distribution(record).metadata.get_all("Provides-Extra") or []
        for one in offers_of(record.name):
            extra = one.backend.extra
            assert not extra or extra in known, (
                f"'{one.backend.name}' names the extra '{extra}'; {record.dist} has: {listed(known)}"
            )

    def test_strategies_can_be_checked_without_torch(self, record: PluginRecord) -> None:
        for resolved in offers_of(record.name):
            if resolved.kind not in ("train", "infer"):
                continue
            module, _, name = resolved.backend.target.partition(":")
            new = in_fresh_interpreter(
                f"import sys\nfrom {module} import {name} as S\nS.Config()\nresult = sorted(sys.modules)"
            )
            heavy = sorted(tops(new) & HEAVY - {"pydantic"})
            assert not heavy, (
                f"importing {module} imports {listed(heavy)}; `roll check` asks {name}.Config and problems(), "
                "so what is heavy is imported inside the methods that run"
            )

    def test_a_backend_is_described(self, resolved: Resolved) -> None:
        title = f"{NOUN_OF_KIND[resolved.kind]} '{resolved.backend.name}'"
        assert resolved.backend.summary.strip(), f"{title} has no summary; `roll plugins -v` shows it"
        if resolved.kind == "train":
            assert resolved.backend.name.endswith(("_train", "_infer")), (
                f"{title} must end in _train, or in _infer where it has no optimiser"
            )

    def test_a_probe_answers_with_a_reason(self, resolved: Resolved) -> None:
        answer = resolved.backend.probe()
        title = f"the probe of '{resolved.backend.name}'"
        assert isinstance(answer, Availability), f"{title} returned a {type(answer).__name__}, not an Availability"
        assert answer.reason.strip(), f"{title} gives no reason; it is shown either way"
        assert type(answer.ok) is bool, f"{title} answers ok={answer.ok!r}, which is not a bool"

    def test_a_backend_is_found_by_its_name(self, resolved: Resolved) -> None:
        for platform in resolved.backend.platforms or ("",):
            found = resolve_backend(_registry(), resolved.kind, resolved.qualified_name, platform)
            assert found.backend.target == resolved.backend.target

    def test_a_target_can_be_imported(self, resolved: Resolved) -> None:
        try:
            resolved.load()
        except PluginError as error:
            if resolved.backend.extra and lacks_a_library(resolved, error):
                pytest.skip(one_line(error))
            pytest.fail(one_line(error), pytrace=False)


def lacks_a_library(resolved: Resolved, error: PluginError) -> bool:
    """Whether a target cannot be imported because a library that it needs is not installed."""
    missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
    own = resolved.backend.target.partition(":")[0].partition(".")[0]
    return missing is not None and missing.partition(".")[0] != own


def one_line(error: Exception) -> str:
    """A message of several lines as one."""
    return " ".join(str(error).split())


@cache
def _registry() -> Registry:
    return load_plugins()


def record_of(plugin: str) -> PluginRecord:
    """The record of a plugin.

    Raises:
        LookupError: no plugin of that name is installed; the message lists those there are.
    """
    for record in _registry().records:
        if same_name(record.name, plugin):
            return record
    known = listed(record.name for record in _registry().records)
    raise LookupError(
        f"no plugin named '{plugin}'\n  installed: {known}\n  try: pip install {plugin.replace('_', '-')}"
    )


def offers_of(plugin: str) -> list[Resolved]:
    """Everything a plugin offers; nothing where it did not load."""
    record = record_of(plugin)
    return [Resolved(kind, record, backend) for kind in HOOK_OF_KIND for backend in record.backends.get(kind, ())]


def module_of(plugin: str) -> str:
    """Name of the module that a plugin's entry point names."""
    if plugin == CORE_NAME:
        return "roll_core.builtins"
    [point] = {(p.value) for p in metadata.entry_points(group=GROUP) if same_name(p.name, plugin)}
    return point.partition(":")[0]


def _distribution(record: PluginRecord) -> metadata.Distribution:
    return metadata.distribution(record.dist)
