"""What in a config no NPU can do, whatever the machine: plans for other machines show it too.

The environment of this process counts as part of a config where it reaches workers, as the plan shows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roll_ascend.env import VARIABLES
from roll_ascend.platform import NpuPlatform
from roll_ascend.settings import fault_of, remedy_for, wants_segments
from roll_core.errors import Problem

if TYPE_CHECKING:
    from roll_core.config.schema import BaseConfig, WorkerConfig

ENGINES = ("vllm",)
_ATTENTION_NAMES = {"fa2": "flash_attention_2", None: "auto"}
_REPLACEMENT = {"megatron_train": "fsdp2_train", "megatron_infer": "fsdp2_infer"}


def config_problems(config: BaseConfig) -> Iterator[Problem]:
    """A problem for every key that asks for what an NPU, CANN or vLLM-Ascend cannot do."""
    from roll_core.config.resolution import started_roles

    roles = started_roles(config)
    for path, role in roles.items():
        yield from _strategy(path, role)
        yield from _attention(path, role)
        if _engine(role):
            yield from _engine_options(path, role)
            yield from _engine_variables(path, role, config)
    yield from _variables("system_envs", config.system_envs, config.node_count)
    for path, role in roles.items():
        yield from _variables(f"{path}.system_envs", role.system_envs, config.node_count)


def _strategy(path: str, role: WorkerConfig) -> Iterator[Problem]:
    # `plugin/megatron_train` names a package that brings it for NPUs, and then that one knows better.
    name = role.strategy_name or ""
    if name in _REPLACEMENT:
        instead = _REPLACEMENT[name]
        rule = f"'{name}' is not available on NPUs; training and scoring are done by FSDP2"
        hint = f"strategy_name: {instead}, with its own strategy_config (fsdp_size, offload_policy: true from 7B on)"
        yield Problem(f"{path}.strategy_args.strategy_name", rule, None, hint)


def _attention(path: str, role: WorkerConfig) -> Iterator[Problem]:
    # In the words of fsdp2's own check, so that a role which has it shows the problem once.
    asked = role.model_args.attn_implementation
    known = (*NpuPlatform.attention, "auto")
    if _ATTENTION_NAMES.get(asked, asked) not in known:
        rule = f"platform '{NpuPlatform.name}' does not offer '{asked}'"
        hint = "fa2, which is transformers' own for NPUs; the package flash_attn is for other devices"
        yield Problem(f"{path}.model_args.attn_implementation", rule, asked, hint)
    for key in ("attn_implementation", "_attn_implementation"):
        value = role.model_args.model_config_kwargs.get(key)
        if isinstance(value, str) and _ATTENTION_NAMES.get(value, value) not in known:
            where = f"{path}.model_args.model_config_kwargs.{key}"
            hint = f"leave it out, and {path}.model_args.attn_implementation: fa2"
            yield Problem(where, f"platform '{NpuPlatform.name}' does not offer '{value}'", value, hint)


def _engine(role: WorkerConfig) -> bool:
    return (role.strategy_name or "").rpartition("/")[2] in ENGINES


def _engine_options(path: str, role: WorkerConfig) -> Iterator[Problem]:
    options = role.strategy_config
    where = f"{path}.strategy_args.strategy_config"
    if "fp8" in str(options.get("quantization", "")).lower():
        rule = "Atlas A2 and A3 do not compute in FP8"
        yield Problem(f"{where}.quantization", rule, options["quantization"], "leave it out: weights stay in bf16")
    if str(options.get("kv_cache_dtype", "auto")).lower().startswith("fp8"):
        rule = "Atlas A2 and A3 do not compute in FP8"
        yield Problem(f"{where}.kv_cache_dtype", rule, options["kv_cache_dtype"], "kv_cache_dtype: auto")


def _engine_variables(path: str, role: WorkerConfig, config: BaseConfig) -> Iterator[Problem]:
    for name, why_not in _ENGINE_REFUSES.items():
        value, where = _setting(path, role, config, name)
        refusal, hint = why_not(value or "", role)
        if refusal:
            shell = "" if where else f"{name}, which the environment of this process sets, reaches {path}: "
            yield Problem(where, f"{shell}{refusal}", value, hint if where else f"unset {name}; {hint}")


def _setting(path: str, role: WorkerConfig, config: BaseConfig, name: str) -> tuple[str | None, str]:
    """The value that reaches the role's workers before any default, and the key that sets it; no key for the shell."""
    if name in role.system_envs:
        return role.system_envs[name], f"{path}.system_envs.{name}"
    if name in config.system_envs:
        return config.system_envs[name], f"system_envs.{name}"
    return os.environ.get(name), ""


def _layout(value: str, role: WorkerConfig) -> tuple[str, str]:
    is_on = value not in ("", "0")
    return "the FRACTAL_NZ layout excludes new weights" if is_on else "", "leave it out: engines get 0"


def _segments(value: str, role: WorkerConfig) -> tuple[str, str]:
    refusal = "an engine that can sleep has a memory pool of its own, and refuses to start with expandable segments"
    hint = "leave it out: workers that train get expandable_segments:True anyway, engines nothing"
    return refusal if wants_segments(value) else "", hint


def _blocking(value: str, role: WorkerConfig) -> tuple[str, str]:
    refusal = "vLLM-Ascend refuses to capture graphs with ASCEND_LAUNCH_BLOCKING=1"
    is_refused = value == "1" and not role.strategy_config.get("enforce_eager")
    return refusal if is_refused else "", "leave it out, or enforce_eager: true in the engine's strategy_config"


_ENGINE_REFUSES: dict[str, Callable[[str, WorkerConfig], tuple[str, str]]] = {
    "VLLM_ASCEND_ENABLE_NZ": _layout,
    "PYTORCH_NPU_ALLOC_CONF": _segments,
    "ASCEND_LAUNCH_BLOCKING": _blocking,
}


def _variables(path: str, variables: Mapping[str, Any], num_nodes: int) -> Iterator[Problem]:
    for name, value in variables.items():
        text = str(value)
        fault = fault_of(name, text)
        if name == NpuPlatform.visible_devices_env:
            rule = "each worker gets the cards that device_mapping names for it, whatever stands here"
            hint = f"export {name} before the run; device_mapping then counts within it"
            yield Problem(f"{path}.{name}", rule, text, hint)
        elif fault:
            yield Problem(f"{path}.{name}", fault, text, remedy_for(name, text))
        elif num_nodes > 1 and name in VARIABLES and VARIABLES[name].per_node:
            rule = f"each of the {num_nodes} nodes needs a value of its own, and a config gives all of them this one"
            yield Problem(f"{path}.{name}", rule, text, f"export {name} on each node before it joins the cluster")
