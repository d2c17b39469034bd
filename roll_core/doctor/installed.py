"""The plugins that are installed: those that failed, and what the others promise and do not have."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from roll_core.backend import NOUN_OF_KIND, Backend, Kind
from roll_core.findings import Finding, Level
from roll_core.plugins import PluginRecord, Registry


def plugin_findings(registry: Registry) -> Iterator[Finding]:
    """A finding per plugin, and one per backend whose class is not there."""
    for record in registry.records:
        title = f"{record.name} ({record.dist} {record.version})" if record.dist else record.name
        if record.state == "failed":
            yield Finding(Level.ERROR, title, f"failed to load: {record.problem}", _remedy(record))
        elif record.state == "off":
            yield Finding(Level.WARNING, title, f"is off: {record.problem}", "change ROLL_PLUGINS or ROLL_PLUGINS_OFF")
        else:
            yield from _loaded(title, record)


def missing_targets(record: PluginRecord) -> list[str]:
    """A sentence for each backend of a plugin whose module or class does not exist; nothing of it is imported."""
    return [
        f"{NOUN_OF_KIND[kind]} '{backend.name}' cannot be loaded: {problem}"
        for kind, backends in record.backends.items()
        for backend in backends
        if (problem := _target_problem(backend))
    ]


def _loaded(title: str, record: PluginRecord) -> Iterator[Finding]:
    missing = missing_targets(record)
    for problem in missing:
        remedy = f"pip install --force-reinstall {record.dist}; its other offers can be used"
        yield Finding(Level.ERROR, title, problem, remedy)
    if not missing:
        yield Finding(Level.OK, title, f"brings {_offers(record) or 'nothing'}")


def _offers(record: PluginRecord) -> str:
    kinds: dict[Kind, list[str]] = {kind: [one.name for one in offers] for kind, offers in record.backends.items()}
    return "; ".join(
        f"{NOUN_OF_KIND[kind]} {', '.join(dict.fromkeys(names))}" for kind, names in kinds.items() if names
    )


def _remedy(record: PluginRecord) -> str:
    if not record.dist:
        return "install it, or take its name out of ROLL_PLUGINS"
    off = f"ROLL_PLUGINS_OFF={record.name} to go without it"
    if "plugins are named" in record.problem:
        return f"pip uninstall {record.dist}, or {off}"
    return f"`roll plugins -v` shows where; pip install --upgrade --force-reinstall {record.dist}, or {off}"


def _target_problem(backend: Backend) -> str:
    module_name, _, class_name = backend.target.partition(":")
    try:
        spec = importlib.util.find_spec(module_name)
    except (ImportError, OSError, ValueError) as error:
        return f"there is no module '{getattr(error, 'name', None) or module_name}' (target {backend.target})"
    except Exception as error:
        # find_spec imports the packages above the module, and those are the plugin's.
        return f"{module_name.rpartition('.')[0]} raised {type(error).__name__}: {error} (target {backend.target})"
    if spec is None:
        return f"there is no module '{module_name}' (target {backend.target})"
    if spec.origin and spec.origin.endswith(".py") and class_name not in _names_of(Path(spec.origin)):
        return f"{module_name} has no '{class_name}' (target {backend.target})"
    return ""


class _Everything(set[str]):
    def __contains__(self, name: object) -> bool:
        return True


def _names_of(path: Path) -> set[str]:
    """Names that a module binds, found by reading it; all names where reading cannot tell."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return _Everything()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
            if node.name == "__getattr__":
                return _Everything()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return _Everything()
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names
