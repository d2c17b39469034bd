"""From a name in a config to the class behind it, or to a message that says why there is none."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from roll_core import names
from roll_core.backend import NOUN_OF_KIND, Availability, Backend, Kind
from roll_core.errors import PluginError
from roll_core.plugin_rules import closest
from roll_core.plugins import PluginRecord, Registry, same_name

BASE_OF_KIND: dict[Kind, str] = {
    "platform": "roll_core.platforms.base:Platform",
    "train": "roll_core.training.base:TrainStrategy",
    "infer": "roll_core.inference.base:InferStrategy",
    "transport": "roll_core.transport.base:Transport",
    "patch": "roll_core.training.base:ModelPatch",
}
"""What each target must be a subclass of; text, because the bases are imported only when a target is."""


@dataclass(frozen=True)
class Resolved:
    """A backend that was chosen, and the plugin that brings it."""

    kind: Kind
    record: PluginRecord
    backend: Backend

    def __str__(self) -> str:
        return f"{self.backend.name} ({self.record.name})"

    @property
    def qualified_name(self) -> str:
        """The name that picks this backend among others of the same name: "plugin/name"."""
        return f"{self.record.name}/{self.backend.name}"

    def availability(self) -> Availability:
        """What the probe says; a probe that raises says no, with what it raised."""
        try:
            answer = self.backend.probe()
        except Exception as error:
            return Availability(False, f"its probe raised {type(error).__name__}: {error}")
        if not isinstance(answer, Availability):
            return Availability(False, f"its probe returned a {type(answer).__name__}, not an Availability")
        return answer

    def load(self) -> type[Any]:
        """Import the class.

        Raises:
            PluginError: a module is missing or cannot be imported, the class is not there, or it is of another kind.
        """
        module_name, _, class_name = self.backend.target.partition(":")
        try:
            module = importlib.import_module(module_name)
        except (ImportError, OSError) as error:
            raise PluginError(_import_message(self, module_name, error)) from error
        target = getattr(module, class_name, None)
        if target is None:
            hint = closest(class_name, vars(module))
            raise PluginError(f"{_title(self)} cannot be loaded: {module_name} has no '{class_name}'{hint}")
        base_module, _, base_name = BASE_OF_KIND[self.kind].partition(":")
        base = getattr(importlib.import_module(base_module), base_name)
        if not (isinstance(target, type) and issubclass(target, base)):
            raise PluginError(f"{_title(self)} cannot be used: {self.backend.target} is not a {base_name}")
        return target


def resolve_backend(registry: Registry, kind: Kind, name: str, platform: str = "") -> Resolved:
    """The one backend that a name stands for, on a platform.

    A backend made for `platform` is taken before one for all platforms. "plugin/name" asks one plugin only.
    Probes are not asked and nothing is imported.

    Raises:
        PluginError: nobody offers the name, or two plugins offer it alike.
    """
    plugin, _, plain = name.rpartition("/")
    if plugin:
        _check_plugin(registry, plugin, name)
    found = [
        Resolved(kind, record, backend)
        for record, backend in registry.offers(kind)
        if backend.name == plain and (not plugin or same_name(record.name, plugin))
    ]
    made_for = [one for one in found if platform and platform in one.backend.platforms]
    chosen = made_for or [one for one in found if not one.backend.platforms]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise PluginError(_ambiguous_message(kind, plain, platform, chosen))
    if found:
        raise PluginError(_elsewhere_message(kind, plain, platform, found))
    raise PluginError(_missing_message(registry, kind, name))


def unusable_lines(registry: Registry) -> list[str]:
    """A line of a message for each plugin that failed or is off."""
    lines = []
    for record in registry.unusable():
        verb = "failed to load" if record.state == "failed" else "is off"
        lines.append(f"  {record.name} {verb}: {record.problem}")
    return lines


def _title(resolved: Resolved) -> str:
    return f"{NOUN_OF_KIND[resolved.kind]} '{resolved.backend.name}' ({resolved.record.name})"


def _import_message(resolved: Resolved, module_name: str, error: ImportError | OSError) -> str:
    dist = resolved.record.dist
    wanted = f'"{dist}[{resolved.backend.extra}]"' if resolved.backend.extra else dist
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (missing == module_name or module_name.startswith(f"{missing}.")):
        what = f"cannot be loaded: there is no module '{missing}'"
        advice = f"pip install --force-reinstall {dist}"
    elif missing:
        what = f"needs the module '{missing}', which is not installed"
        advice = f"pip install {wanted}" if resolved.backend.extra else f"pip install --upgrade {dist}"
    else:
        what = f"cannot be imported: {type(error).__name__}: {error}"
        advice = f"pip install --upgrade {wanted}"
    return f"{_title(resolved)} {what}\n  target: {resolved.backend.target}\n  try: {advice}"


def _check_plugin(registry: Registry, plugin: str, name: str) -> None:
    record = next((one for one in registry.records if same_name(one.name, plugin)), None)
    if record is not None and record.state == "loaded":
        return
    hint = closest(plugin, [one.name for one in registry.records])
    known = ", ".join(one.name for one in registry.records if one.state == "loaded")
    lines = [f"no plugin named '{plugin}', asked by '{name}'{'' if record else hint}", f"  loaded: {known}"]
    raise PluginError("\n".join(lines + unusable_lines(registry)))


def _ambiguous_message(kind: Kind, name: str, platform: str, chosen: list[Resolved]) -> str:
    where = f" for platform '{platform}'" if platform and chosen[0].backend.platforms else ""
    lines = [f"{len(chosen)} plugins offer the {NOUN_OF_KIND[kind]} '{name}'{where}"]
    lines += [f"  {one.record.name} ({one.record.dist} {one.record.version}): {one.backend.target}" for one in chosen]
    lines.append(f"  try: {' or '.join(one.qualified_name for one in chosen)}")
    return "\n".join(lines)


def _elsewhere_message(kind: Kind, name: str, platform: str, found: list[Resolved]) -> str:
    where = f"for platform '{platform}'" if platform else "without a platform"
    lines = [f"no {NOUN_OF_KIND[kind]} named '{name}' {where}"]
    lines += [f"  {one} is for: {', '.join(one.backend.platforms)}" for one in found]
    return "\n".join(lines)


def _missing_message(registry: Registry, kind: Kind, name: str) -> str:
    plugin, _, plain = name.rpartition("/")
    offered = [offer for offer in registry.offers(kind) if not plugin or same_name(offer[0].name, plugin)]
    known = names.well_known(kind, plain)
    # A well-known name is no typing error, whatever it looks like.
    hint = "" if known else closest(plain, [backend.name for _, backend in offered])
    if not known and not hint:
        known = names.nearly_known(kind, plain)
        hint = f"; did you mean '{known.name}'?" if known else ""
    shown = dict.fromkeys(f"{backend.name} ({record.name})" for record, backend in offered)
    lines = [f"no {NOUN_OF_KIND[kind]} named '{name}'{hint}", f"  installed: {', '.join(shown) or 'none'}"]
    lines += unusable_lines(registry)
    if known is not None:
        lines.append(_advice(registry, kind, known))
    elif not hint and registry.unusable():
        lines.append("  try: `roll plugins -v`")
    return "\n".join(lines)


def _advice(registry: Registry, kind: Kind, known: names.WellKnown) -> str:
    if any(backend.name == known.name for _, backend in registry.offers(kind)):
        return f"  try: {known.name}"
    if not known.package:
        return f"  {known.name}: {known.remark}"
    record = next((one for one in registry.records if same_name(one.dist, known.package)), None)
    if record is None:
        return f"  try: pip install {known.package}"
    if record.state == "loaded":
        return (
            f"  {record.dist} {record.version} is installed and does not offer {known.name}\n"
            f"  try: pip install --upgrade {record.dist}"
        )
    return "  try: `roll plugins -v`"
