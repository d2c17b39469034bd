"""Loads the plugins that are installed and asks each what it offers.

The loop is our own, because pluggy's loader stops at the first plugin that cannot be imported. Here a broken
plugin becomes a record that says what is wrong with it, and the others load as if it were not there.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Literal

import pluggy

from roll_core import hookspecs
from roll_core._version import __version__
from roll_core.backend import HOOK_OF_KIND, Backend, Kind
from roll_core.errors import PluginError
from roll_core.plugin_rules import BadPlugin, answers_of, check_api, check_hooks, check_offers, closest

GROUP = "roll_core"
CORE_NAME = "roll_core"
CORE_DIST = "roll-core"

State = Literal["loaded", "off", "failed"]


@dataclass(frozen=True)
class PluginRecord:
    """What became of one plugin. `problem` says why where `state` is "off" or "failed"."""

    name: str
    dist: str
    version: str
    state: State
    problem: str = ""
    backends: Mapping[Kind, tuple[Backend, ...]] = field(default_factory=dict)
    traceback: str = field(default="", compare=False)


@dataclass(frozen=True)
class Registry:
    """The records of all plugins, core's own first, the others by name."""

    records: tuple[PluginRecord, ...]

    def offers(self, kind: Kind) -> list[tuple[PluginRecord, Backend]]:
        """All backends of a kind, with the plugin that brings each."""
        return [(record, backend) for record in self.records for backend in record.backends.get(kind, ())]

    def unusable(self) -> list[PluginRecord]:
        """Plugins that failed or are turned off; every error that one of them may explain quotes it."""
        return [record for record in self.records if record.state != "loaded"]

    def fingerprint(self) -> dict[str, str]:
        """Version of each distribution with a loaded plugin; must be equal on the driver and on every node."""
        return {record.dist: record.version for record in self.records if record.state == "loaded"}


def load_plugins(
    environ: Mapping[str, str] = os.environ, entry_points: Iterable[metadata.EntryPoint] | None = None
) -> Registry:
    """Load core's own offers and those of every plugin that is installed and not turned off.

    `ROLL_PLUGINS` lists the only plugins to load (empty: none but core's own), `ROLL_PLUGINS_OFF` those to leave
    out; both take names of plugins or of distributions, separated by commas. `ROLL_TRACE_PLUGINS=1` prints a line
    per plugin to stderr. Never raises for a broken plugin. Loading twice gives equal registries.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    core = _load_core(manager)
    candidates, clashes = _candidates(metadata.entry_points(group=GROUP) if entry_points is None else entry_points)
    only, off = _names_in(environ.get("ROLL_PLUGINS")), _names_in(environ.get("ROLL_PLUGINS_OFF")) or []
    records = list(clashes)
    taken = {kind: {backend.name for backend in core.backends.get(kind, ())} for kind in HOOK_OF_KIND}
    for point in candidates:
        started = time.perf_counter()
        reason = _turned_off(point, only, off)
        record = _record(point, "off", reason) if reason else _load(manager, point, taken["platform"])
        _trace(environ, record, time.perf_counter() - started)
        records.append(record)
    records += _never_installed(only or [], "ROLL_PLUGINS", "failed", [core, *records])
    records += _never_installed(off, "ROLL_PLUGINS_OFF", "off", [core, *records])
    return Registry((core, *sorted(records, key=lambda record: (record.name, record.dist))))


def compare_fingerprints(driver: Mapping[str, str], worker: Mapping[str, str], node: str) -> None:
    """Check that a node has the driver's plugins in the driver's versions.

    Raises:
        PluginError: naming the node and each distribution that differs.
    """
    differing = sorted(dist for dist in driver.keys() | worker.keys() if driver.get(dist) != worker.get(dist))
    if not differing:
        return
    lines = [f"node '{node}' has other plugins than the driver"]
    lines += [f"  {dist}: driver {driver.get(dist, 'none')}, node {worker.get(dist, 'none')}" for dist in differing]
    lines.append("  try: `roll plugins` on both, then install the same versions, or turn one off with ROLL_PLUGINS_OFF")
    raise PluginError("\n".join(lines))


def same_name(left: str, right: str) -> bool:
    """Whether two spellings name one plugin or distribution: case, `-`, `_` and `.` make no difference."""
    return _plain(left) == _plain(right)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _load_core(manager: pluggy.PluginManager) -> PluginRecord:
    # A mistake in core's own offers is a bug of core: it is raised, not recorded.
    module = importlib.import_module("roll_core.builtins")
    manager.register(module, CORE_NAME)
    return PluginRecord(CORE_NAME, CORE_DIST, __version__, "loaded", "", answers_of(manager, module))


def _candidates(
    points: Iterable[metadata.EntryPoint],
) -> tuple[list[metadata.EntryPoint], list[PluginRecord]]:
    """Entry points to load, sorted, without core's own; and a failed record for each whose name is taken."""
    unique = {(point.name, _dist_name(point), point.value): point for point in points}
    others = [unique[key] for key in sorted(unique) if not (key[0] == CORE_NAME and same_name(key[1], CORE_DIST))]
    counts = Counter(_plain(point.name) for point in others)
    fine, clashes = [], []
    for point in others:
        rivals = sorted(_dist_name(other) for other in others if same_name(other.name, point.name))
        if same_name(point.name, CORE_NAME):
            clashes.append(_record(point, "failed", f"the plugin name '{CORE_NAME}' belongs to {CORE_DIST}"))
        elif counts[_plain(point.name)] > 1:
            problem = f"{len(rivals)} plugins are named '{point.name}': {', '.join(rivals)}; uninstall all but one"
            clashes.append(_record(point, "failed", problem))
        else:
            fine.append(point)
    return fine, clashes


def _names_in(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _turned_off(point: metadata.EntryPoint, only: list[str] | None, off: list[str]) -> str:
    def is_in(names: list[str]) -> bool:
        return any(same_name(name, point.name) or same_name(name, _dist_name(point)) for name in names)

    if is_in(off):
        return "turned off by ROLL_PLUGINS_OFF"
    if only is not None and not is_in(only):
        return f"not in ROLL_PLUGINS ({', '.join(only) or 'empty'})"
    return ""


def _never_installed(names: list[str], variable: str, state: State, known: list[PluginRecord]) -> list[PluginRecord]:
    """A record for each name in a variable that no installed plugin has: a typing error must not pass silently."""
    records = []
    for name in names:
        if not any(same_name(name, record.name) or same_name(name, record.dist) for record in known):
            hint = closest(name, [record.name for record in known])
            records.append(PluginRecord(name, "", "", state, f"named in {variable}, not installed{hint}"))
    return records


def _load(manager: pluggy.PluginManager, point: metadata.EntryPoint, reserved: set[str]) -> PluginRecord:
    """Import one plugin, check and register it, and ask it; whatever goes wrong is recorded.

    A plugin that fails after some of its hooks were registered leaves no trace: the manager serves one loading, and
    each plugin is asked on its own.
    """
    try:
        module = point.load()
        check_api(module, _dist_name(point))
        check_hooks(manager, module)
        manager.register(module, point.name)
        answers = answers_of(manager, module)
        check_offers(answers, reserved)
    except BadPlugin as error:
        return _record(point, "failed", str(error))
    except (Exception, SystemExit) as error:
        text = "".join(traceback.format_exception(error))
        return _record(point, "failed", f"{type(error).__name__}: {error}", text)
    return PluginRecord(point.name, _dist_name(point), _dist_version(point), "loaded", "", answers)


def _record(point: metadata.EntryPoint, state: State, problem: str, trace: str = "") -> PluginRecord:
    return PluginRecord(point.name, _dist_name(point), _dist_version(point), state, problem, {}, trace)


def _dist_name(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None and point.dist.name else "unknown"


def _dist_version(point: metadata.EntryPoint) -> str:
    return point.dist.version if point.dist is not None and point.dist.version else "unknown"


def _trace(environ: Mapping[str, str], record: PluginRecord, seconds: float) -> None:
    if environ.get("ROLL_TRACE_PLUGINS") != "1":
        return
    offered = [backend.name for backends in record.backends.values() for backend in backends]
    detail = record.problem or f"offers {', '.join(offered) or 'nothing'}"
    place = f"{record.name} ({record.dist} {record.version})"
    print(f"roll: plugin {place} {record.state} in {seconds * 1000:.0f} ms: {detail}", file=sys.stderr)
