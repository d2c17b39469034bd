"""Decides the platform of a run: the config's word, else ROLL_PLATFORM, else what the machine shows.

The processors every machine has are taken only where nothing shows an accelerator, or where they were asked for:
a run that is slow without a word costs more than one that stops.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roll_core import names
from roll_core.backend import Availability
from roll_core.errors import PluginError
from roll_core.plugin_rules import AUTO
from roll_core.plugins import CORE_NAME, Registry, same_name
from roll_core.resolve.backend import Resolved, resolve_backend, unusable_lines

if TYPE_CHECKING:
    from roll_core.platforms.base import Platform

Source = Literal["config", "ROLL_PLATFORM", "detection"]


@dataclass(frozen=True)
class ResolvedPlatform:
    """The platform of a run, who decided it, and why."""

    name: str
    source: Source
    reasons: tuple[str, ...]
    resolved: Resolved

    @property
    def target(self) -> str:
        """Where the class is, as "pkg.mod:Class"; this is what travels to workers."""
        return self.resolved.backend.target

    def load(self) -> type[Platform]:
        """The class, whose facts can be read without a device."""
        return self.resolved.load()

    def create(self) -> Platform:
        """An instance; nothing is set up by making it."""
        return self.load()()


@dataclass(frozen=True)
class _Candidate:
    resolved: Resolved
    here: Availability

    def __str__(self) -> str:
        return f"{self.resolved}: {self.here.reason}"


def resolve_platform(
    registry: Registry,
    asked: str | None = None,
    environ: Mapping[str, str] = os.environ,
    machine: Sequence[str] | None = None,
    ray_resources: Mapping[str, float] | None = None,
) -> ResolvedPlatform:
    """Decide the platform, once, on the driver.

    `asked` is the config's value; None, "" and "auto" leave it to ROLL_PLATFORM, then to detection. `machine` lists
    the device files of well-known accelerators (default: those of this machine); `ray_resources` are the totals of
    the Ray cluster to be used, where one is already there.

    Raises:
        PluginError: the platform asked for is unknown or has no device here or in the cluster; several platforms
            could be meant; or an accelerator is there that no plugin can use.
    """
    name, source = _asked(asked, environ)
    resources = ray_resources or {}
    if name != AUTO:
        return _take(registry, name, source, resources)
    candidates = [
        _look(Resolved("platform", record, backend), resources)
        for record, backend in registry.offers("platform")
        if record.name != CORE_NAME
    ]
    ready = [candidate for candidate in candidates if candidate.here.ok]
    if ready:
        return _first(ready)
    files = names.device_files() if machine is None else list(machine)
    evidence = names.device_evidence(files, resources)
    if evidence:
        raise PluginError(_unusable_accelerator_message(registry, evidence, candidates))
    return _plain_processors(registry, candidates)


def _asked(asked: str | None, environ: Mapping[str, str]) -> tuple[str, Source]:
    for value, source in ((asked, "config"), (environ.get("ROLL_PLATFORM"), "ROLL_PLATFORM")):
        if value and value != AUTO:
            return value, source  # type: ignore[return-value]
    return AUTO, "detection"


def _look(resolved: Resolved, resources: Mapping[str, float]) -> _Candidate:
    """What a platform says about this machine; a device elsewhere in the cluster is as good as one here."""
    here = resolved.availability()
    if not here.ok and resources and resolved.record.name != CORE_NAME:
        try:
            resource = resolved.load().ray_resource
        except PluginError as error:
            return _Candidate(resolved, Availability(False, f"{here.reason}; {_one_line(str(error))}"))
        if resources.get(resource, 0) > 0:
            return _Candidate(resolved, Availability(True, f"{resources[resource]:g} {resource} in the Ray cluster"))
    return _Candidate(resolved, here)


def _take(registry: Registry, name: str, source: Source, resources: Mapping[str, float]) -> ResolvedPlatform:
    try:
        candidate = _look(resolve_backend(registry, "platform", name), resources)
    except PluginError as error:
        raise PluginError(str(error) + _by(source) + _known_by_another_name(registry, name, resources)) from error
    if not candidate.here.ok:
        resolved = candidate.resolved
        extra = f'"{resolved.record.dist}[{resolved.backend.extra}]"'
        install = f"pip install {extra}, or " if resolved.backend.extra else ""
        raise PluginError(
            f"platform '{resolved.backend.name}' ({resolved.record.name}) cannot be used here: {candidate.here.reason}"
            f"{_by(source)}\n  try: {install}a machine or a Ray cluster with its devices, or `platform: cpu`"
        )
    reasons = (f"asked for by {source}", candidate.here.reason)
    return ResolvedPlatform(candidate.resolved.backend.name, source, reasons, candidate.resolved)


def _by(source: Source) -> str:
    return "\n  asked by: ROLL_PLATFORM" if source == "ROLL_PLATFORM" else ""


def _known_by_another_name(registry: Registry, name: str, resources: Mapping[str, float]) -> str:
    """Why the platform that is meant would not do either, so that a second attempt is spared."""
    known = names.well_known("platform", name)
    offers = [Resolved("platform", *offer) for offer in registry.offers("platform") if known]
    meant = [_look(one, resources) for one in offers if known and one.backend.name == known.name]
    return "".join(f"\n  not usable here: {candidate}" for candidate in meant if not candidate.here.ok)


def _first(ready: Sequence[_Candidate]) -> ResolvedPlatform:
    top = max(candidate.resolved.backend.priority for candidate in ready)
    leading = [candidate for candidate in ready if candidate.resolved.backend.priority == top]
    if len(leading) > 1:
        rivals = [candidate.resolved for candidate in leading]
        distinct = len({one.backend.name for one in rivals}) == len(rivals)
        choices = [one.backend.name if distinct else one.qualified_name for one in rivals]
        lines = [f"{len(leading)} platforms can be used here, and none comes before the others"]
        lines += [f"  {candidate}" for candidate in leading]
        lines.append(f"  try: `platform: {choices[0]}` in the config, or ROLL_PLATFORM={choices[0]}")
        raise PluginError("\n".join(lines))
    winner = leading[0]
    passed_over = [f"comes before {candidate}" for candidate in ready if candidate is not winner]
    return ResolvedPlatform(
        winner.resolved.backend.name, "detection", (winner.here.reason, *passed_over), winner.resolved
    )


def _unusable_accelerator_message(
    registry: Registry, evidence: Mapping[str, list[str]], candidates: Sequence[_Candidate]
) -> str:
    lines = ["there is an accelerator here that no loaded plugin can use"]
    lines += [f"  found: {', '.join(shown)} (platform {name})" for name, shown in evidence.items()]
    lines += [f"  {candidate}" for candidate in candidates]
    lines += unusable_lines(registry)
    packages = dict.fromkeys(names.package_of("platform", name) for name in evidence)
    installed = [record.dist for record in registry.records]
    missing = [package for package in packages if not any(same_name(package, dist) for dist in installed)]
    install = f"pip install {' '.join(missing)}" if missing else "mend what is named above (`roll plugins -v`)"
    lines.append(f"  try: {install}; or `platform: cpu` to run without it")
    return "\n".join(lines)


def _plain_processors(registry: Registry, candidates: Sequence[_Candidate]) -> ResolvedPlatform:
    record, backend = next(offer for offer in registry.offers("platform") if offer[0].name == CORE_NAME)
    failed = [one for one in registry.unusable() if one.state == "failed"]
    passed_over = [str(candidate) for candidate in candidates]
    passed_over += [f"{one.name} failed to load: {one.problem}" for one in failed]
    reasons = ("no accelerator found", *passed_over)
    return ResolvedPlatform(backend.name, "detection", reasons, Resolved("platform", record, backend))


def _one_line(text: str) -> str:
    return " ".join(text.split())
