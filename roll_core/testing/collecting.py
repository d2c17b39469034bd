"""From a plugin's name to the contracts of what it offers, as classes that pytest collects."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roll_core.backend import Availability
from roll_core.errors import PluginError
from roll_core.plugins import load_plugins
from roll_core.resolve import Resolved, resolve_backend
from roll_core.testing.contract import Contract
from roll_core.testing.infer_contract import InferContract
from roll_core.testing.patch_contract import PatchContract
from roll_core.testing.platform_contract import PlatformContract
from roll_core.testing.plugin_contract import PluginContract, module_of, offers_of, one_line, record_of
from roll_core.testing.train_contract import TrainContract
from roll_core.testing.transport_contract import TransportContract

CONTRACTS: Mapping[str, type[Contract]] = {
    "platform": PlatformContract,
    "train": TrainContract,
    "infer": InferContract,
    "transport": TransportContract,
    "patch": PatchContract,
}


def contracts_of(plugin: str) -> Iterator[tuple[str, type[Contract]]]:
    """Each contract to run on a plugin, with a title such as "platform demo"."""
    record = record_of(plugin)
    yield f"plugin {record.name}", _made(PluginContract, "", {"plugin": record.name})
    own = _own_contracts(plugin)
    for resolved in offers_of(plugin):
        base = CONTRACTS[resolved.kind]
        of_name = [one for one in own if issubclass(one, base) and one.backend == resolved.backend.name]
        given = of_name[0] if of_name else base
        platforms = f" on {'/'.join(resolved.backend.platforms)}" if resolved.backend.platforms else ""
        yield (
            f"{resolved.kind} {resolved.backend.name}{platforms}",
            _made(given, resolved.backend.name, _settings(resolved)),
        )


def _made(given: type[Contract], name: str, settings: Mapping[str, Any]) -> type[Contract]:
    """A subclass with these settings, except for those that a plugin's own class has made already."""
    classes = given.__mro__[: given.__mro__.index(Contract)]
    own = {key for one in classes if not one.__module__.startswith("roll_core.testing.") for key in vars(one)}
    kept = {key: value for key, value in settings.items() if key not in own}
    return type(given.__name__, (given,), {"backend": name, "__module__": given.__module__, **kept})


def _own_contracts(plugin: str) -> list[type[Contract]]:
    package = module_of(plugin).rpartition(".")[0]
    name = f"{package}.contracts"
    if not package or importlib.util.find_spec(name) is None:
        return []
    members = vars(importlib.import_module(name)).values()
    return [one for one in members if isinstance(one, type) and issubclass(one, Contract) and one.backend]


def _settings(resolved: Resolved) -> dict[str, Any]:
    try:
        target = resolved.load()
    except PluginError as error:
        return {"unavailable": one_line(error)}
    if resolved.kind == "platform":
        return {"platform_class": target, "availability": classmethod(lambda cls: resolved.availability())}
    here = resolved.availability()
    if resolved.kind == "transport":
        return {"transport_class": target, "unavailable": "" if here.ok else here.reason}
    if resolved.kind == "patch":
        return {"patch_class": target, "options": _patch_options(resolved.backend.name)}
    platform, reason = _platform_for(resolved)
    settings = {"platform_class": platform, "unavailable": reason if here.ok else here.reason}
    if resolved.kind == "train":
        is_trainer = not resolved.backend.name.endswith("_infer")
        name = resolved.qualified_name
        return settings | {"strategy_class": target, "strategy_name": name, "has_optimizer": is_trainer}
    abilities = lambda self: platform().abilities()  # noqa: E731
    return settings | {"make": _engine_maker(resolved, target, platform), "abilities": abilities}


def _platform_for(resolved: Resolved) -> tuple[type[Any], str]:
    """The first platform a backend is for that has a device here, or why there is none; else plain processors."""
    registry = load_plugins()
    reasons = []
    for name in resolved.backend.platforms or ("cpu",):
        try:
            platform = resolve_backend(registry, "platform", name)
            here = platform.availability()
            if here.ok:
                return platform.load(), ""
        except PluginError as error:
            here = Availability(False, one_line(error))
        reasons.append(f"no device of '{name}' here: {here.reason}")
    return resolve_backend(registry, "platform", "cpu").load(), "; ".join(reasons)


def _patch_options(name: str) -> Mapping[str, Any]:
    """The options that fsdp2_train gives a patch of this name."""
    from roll_core.training.fsdp2_config import Fsdp2Config
    from roll_core.training.patches import requested_patches

    asked = Fsdp2Config.model_validate({key: True for key in Fsdp2Config.model_fields if key.startswith("apply_")})
    return requested_patches(asked).get(name, {})


def _engine_maker(resolved: Resolved, target: type[Any], platform: type[Any]) -> Any:
    def make(self: InferContract, folder: Path, **strategy_config: Any) -> Any:
        from roll_core.config.schema import WorkerConfig
        from roll_core.context import WorkerContext

        role = WorkerConfig.model_validate(
            {
                "name": "actor_infer",
                "model_args": {"model_name_or_path": str(folder), "dtype": "fp32"},
                "strategy_args": {"strategy_name": resolved.qualified_name, "strategy_config": strategy_config},
            }
        )
        return target(role, platform(), WorkerContext("actor_infer"))

    return make
