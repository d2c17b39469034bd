"""What the platforms say about this machine: those whose device is here, or the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from roll_core import names
from roll_core.doctor.packages import import_finding
from roll_core.errors import PluginError, RollError
from roll_core.findings import Finding, Level
from roll_core.platforms.base import Platform
from roll_core.plugins import CORE_NAME, Registry
from roll_core.resolve import Resolved, resolve_backend, resolve_platform

_COUNT = """
import importlib
module, _, name = {target!r}.partition(":")
platform = getattr(importlib.import_module(module), name)()
platform.setup()
print(platform.device_count(), "devices can be used")
"""


def relevant_platforms(
    registry: Registry, asked: str | None, environ: Mapping[str, str], files: Sequence[str]
) -> list[Resolved]:
    """The platform asked for, or those that have a device here or that ROLL_PLATFORM names.

    Raises:
        PluginError: the platform asked for is unknown.
    """
    if asked:
        return [resolve_backend(registry, "platform", asked)]
    evident = set(names.device_evidence(list(files), {}))
    offers = [Resolved("platform", record, backend) for record, backend in registry.offers("platform")]
    wanted = environ.get("ROLL_PLATFORM", "")
    named = [one for one in offers if one.backend.name == wanted]
    others = [one for one in offers if one.record.name != CORE_NAME and one not in named]
    return named + [one for one in others if one.backend.name in evident or one.availability().ok]


def choice_findings(registry: Registry, environ: Mapping[str, str], files: Sequence[str]) -> Iterator[Finding]:
    """The platform that a run without the key `platform` would take here."""
    try:
        chosen = resolve_platform(registry, None, environ, machine=files)
    except PluginError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        remedy = "; ".join(line.removeprefix("try: ") for line in lines if line.startswith("try: "))
        found = "; ".join(line for line in lines if not line.startswith("try: "))
        yield Finding(Level.ERROR, "platform of a run", found, remedy)
    else:
        yield Finding(Level.OK, "platform of a run", f"{chosen.name}: {'; '.join(chosen.reasons)}")


def platform_findings(resolved: Resolved, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a platform has devices here, which are visible, and everything that it finds by itself."""
    here = resolved.availability()
    subject = f"platform {resolved.backend.name}"
    remedy = "" if here.ok else "plans can be made here; runs need a machine or a Ray cluster with its devices"
    yield Finding(Level.OK if here.ok else Level.WARNING, subject, here.reason, remedy)
    try:
        platform: Platform = resolved.load()()
    except PluginError as error:
        head, _, advice = str(error).partition("\n  try: ")
        yield Finding(Level.ERROR, subject, " ".join(head.split()), advice)
        return
    yield from _visible(platform, environ)
    if here.ok and resolved.record.name != CORE_NAME:
        code = _COUNT.format(target=resolved.backend.target)
        remedy = "see the platform's own findings; `roll doctor --explain` with the whole error knows more"
        yield import_finding(f"devices of {resolved.backend.name}", code, remedy)
    yield from _own(resolved, platform)


def _visible(platform: Platform, environ: Mapping[str, str]) -> Iterator[Finding]:
    if not platform.visible_devices_env:
        yield Finding(Level.OK, "visible devices", "this platform has no variable that hides devices")
        return
    try:
        ids = platform.visible_ids(environ)
    except RollError as error:
        head, _, advice = str(error).partition("\n  try: ")
        yield Finding(Level.ERROR, "visible devices", head, advice)
        return
    names_ = ", ".join((platform.visible_devices_env, *platform.visible_devices_aliases))
    if ids is None:
        yield Finding(Level.OK, "visible devices", f"all; {names_} unset")
    elif not ids:
        yield Finding(Level.ERROR, "visible devices", f"none: {names_} empty", f"unset {names_}, or list ids")
    elif len(set(ids)) < len(ids):
        yield Finding(Level.ERROR, "visible devices", f"{','.join(ids)} has an id twice", "each id once")
    else:
        found = f"{len(ids)}: {','.join(ids)}; a config's device 0 is {ids[0]}"
        yield Finding(Level.OK, "visible devices", found)


def _own(resolved: Resolved, platform: Platform) -> Iterator[Finding]:
    try:
        found = list(platform.findings())
    except Exception as error:
        # Code of a plugin: whatever it raises is said, and the report goes on.
        text = f"its findings() raised {type(error).__name__}: {error}"
        yield Finding(Level.ERROR, f"platform {resolved.backend.name}", text, f"report it to {resolved.record.dist}")
        return
    yield from found
