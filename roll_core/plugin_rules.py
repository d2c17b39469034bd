"""What a plugin module must look like; each rule answers with a sentence for the plugin's author."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import pluggy

from roll_core._version import PLUGIN_API
from roll_core.backend import HOOK_OF_KIND, Backend, Kind

HOOK_PREFIX = "roll_"
AUTO = "auto"


class BadPlugin(Exception):
    """A plugin breaks a rule; the message is the record's problem."""


def check_api(module: object, dist: str) -> None:
    """The plugin is a module that was written for this version of the hooks.

    Raises:
        BadPlugin: it is not a module, or its `ROLL_PLUGIN_API` is missing or another number.
    """
    if not isinstance(module, ModuleType):
        raise BadPlugin(f"the entry point names a {type(module).__name__}; a plugin is a module")
    api = getattr(module, "ROLL_PLUGIN_API", None)
    if type(api) is not int:
        found = "no ROLL_PLUGIN_API" if api is None else f"ROLL_PLUGIN_API = {api!r}"
        raise BadPlugin(f"{module.__name__} has {found}; it needs ROLL_PLUGIN_API = {PLUGIN_API}")
    if api != PLUGIN_API:
        newer = "roll-core" if api > PLUGIN_API else dist
        raise BadPlugin(
            f"written for plugin API {api}, this roll-core has {PLUGIN_API}; try: pip install --upgrade {newer}"
        )


def check_hooks(manager: pluggy.PluginManager, module: ModuleType) -> None:
    """Every function that looks like an answer to a hook is one.

    Raises:
        BadPlugin: an unknown hook name, a hook name without the marker, a marker with options hooks don't have.
    """
    hooks = list(HOOK_OF_KIND.values())
    for name, member in vars(module).items():
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            is_own = inspect.isroutine(member) and getattr(member, "__module__", "") == module.__name__
            if is_own and name.startswith(HOOK_PREFIX):
                known = name in hooks
                advice = "it needs the marker @roll_core.hookimpl" if known else f"no such hook{closest(name, hooks)}"
                raise BadPlugin(f"function {name} is not an answer to a hook: {advice}")
            continue
        hook = options.get("specname") or name
        if hook not in hooks:
            raise BadPlugin(f"no hook named '{hook}'{closest(hook, hooks)}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise BadPlugin(f"{name} is a wrapper; hooks are asked one plugin at a time, so there is nothing to wrap")


def answers_of(manager: pluggy.PluginManager, module: ModuleType) -> dict[Kind, tuple[Backend, ...]]:
    """Ask a registered plugin alone, and no other.

    Raises:
        BadPlugin: an answer that is not a list of `Backend`. What the plugin itself raises passes through.
    """
    answers: dict[Kind, tuple[Backend, ...]] = {}
    for kind, hook in HOOK_OF_KIND.items():
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            if implementation.plugin is module:
                answers[kind] = (*answers.get(kind, ()), *_backends(hook, implementation.function()))
    return answers


def check_offers(answers: Mapping[Kind, tuple[Backend, ...]], reserved: set[str]) -> None:
    """The names and targets a plugin offers can be told apart and found.

    Raises:
        BadPlugin: a platform with a name of core's own, a name twice, or a malformed name or target.
    """
    for name in (backend.name for backend in answers.get("platform", ())):
        if name in reserved or name == AUTO:
            meaning = "means detection" if name == AUTO else "belongs to roll_core"
            raise BadPlugin(f"offers a platform named '{name}', which {meaning}")
    for kind, backends in answers.items():
        seen: set[tuple[str, str]] = set()
        for backend in backends:
            _check_backend(HOOK_OF_KIND[kind], backend)
            for platform in backend.platforms or ("",):
                if (backend.name, platform) in seen:
                    where = f" for platform '{platform}'" if platform else ""
                    raise BadPlugin(f"{HOOK_OF_KIND[kind]} offers '{backend.name}'{where} twice")
                seen.add((backend.name, platform))


def closest(asked: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the nearest known name, or nothing where none is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(asked.lower(), by_lower, n=1)
    return f"; did you mean '{by_lower[near[0]]}'?" if near else ""


def _backends(hook: str, answer: Any) -> list[Backend]:
    if not isinstance(answer, list):
        raise BadPlugin(f"{hook} returned {_shown(answer)}, not a list of Backend")
    for item in answer:
        if not isinstance(item, Backend):
            raise BadPlugin(f"{hook} returned a list with {_shown(item)} in it, not a list of Backend")
    return answer


def _shown(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _check_backend(hook: str, backend: Backend) -> None:
    if not isinstance(backend.name, str) or not backend.name or "/" in backend.name:
        raise BadPlugin(f"{hook} offers the name {backend.name!r}; a name is text without '/'")
    if isinstance(backend.platforms, str):
        raise BadPlugin(f"{hook}: '{backend.name}' has platforms={backend.platforms!r}; it takes a tuple of names")
    module, _, name = str(backend.target).partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise BadPlugin(f"{hook}: '{backend.name}' has the target {backend.target!r}; it is written 'pkg.mod:Class'")
