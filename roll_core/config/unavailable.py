"""Keys that the schema knows and this version cannot do: refused before a run, so that nothing is left out silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from roll_core.config.agentic import AgenticConfig
from roll_core.config.pipeline import BaseConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.roles import WorkerConfig
from roll_core.errors import Problem


@dataclass(frozen=True)
class Unavailable:
    """One key: when it asks for something, why that is refused, and what to write instead."""

    key: str
    asks: Callable[[Any], bool]
    rule: str
    hint: str = "leave the key out"


_ON = bool
_PUBLISHED_CLASSES = ("roll.pipeline.", "roll.distributed.")
"""Published configs name the class that a role has anyway."""
_PIPELINE = (
    Unavailable(
        "generate_opt_level",
        lambda level: level != 1,
        "prompts are always scheduled one by one",
        "generate_opt_level: 1",
    ),
    Unavailable("user_defined_rollout_loop_cls", _ON, "a rollout loop of your own is not part of this version"),
    Unavailable("router_args", lambda args: args is not None and args.router_name is not None, "there is one router"),
    Unavailable("rollout_mock", lambda mock: mock is not None and mock.enable, "rollouts are not read from files"),
    Unavailable("profiler_timeline", _ON, "profiles are not part of this version"),
    Unavailable("profiler_memory", _ON, "profiles are not part of this version"),
    Unavailable("is_offload_optimizer_states_in_train_step", _ON, "the optimiser stays where it is in a step"),
    Unavailable("save_logging_board_dir", _ON, "per-token logs are not part of this version"),
    Unavailable("use_opd", _ON, "distillation is not part of this version"),
    Unavailable("is_pure_opd", _ON, "distillation is not part of this version"),
    Unavailable("opsd_mode", _ON, "distillation is not part of this version"),
    Unavailable("teacher", _ON, "distillation is not part of this version"),
    Unavailable("student_train", lambda role: role is not None, "distillation is not part of this version"),
    Unavailable("student_infer", lambda role: role is not None, "distillation is not part of this version"),
)
_AGENTIC = (
    Unavailable("reward", lambda role: role is not None, "rewards come from environments in this version"),
    Unavailable("exp_mode", lambda mode: mode != "train", "a config is run to train", "exp_mode: train"),
    Unavailable("parse_tool_call_parameter_to_dict", _ON, "tools are the environments' own matter in this version"),
)
_PROXY = (
    Unavailable(
        "proxy_type",
        lambda kind: kind != "policy",
        "episodes are played by the model that is trained",
        "proxy_type: policy",
    ),
)
_ENVIRONMENT = (
    Unavailable("tool_wrapper", _ON, "tools are the environments' own matter in this version"),
    Unavailable("pre_step_template", _ON, "images are not part of this version"),
    Unavailable("next_step_template", _ON, "images are not part of this version"),
)
_ROLE = (
    Unavailable("use_sequence_packing", _ON, "rows are sorted by length and cut by tokens instead of packed"),
    Unavailable("opd_kl_coef", lambda value: value is not None, "distillation is not part of this version"),
    Unavailable("apply_loss_scale", lambda is_on: not is_on, "a loss is always normalised over its whole mini-batch"),
)
_DATA = (
    Unavailable("video", _ON, "rows with videos are not part of this version"),
    Unavailable("custom_data_kwargs_func", _ON, "rows are used as they stand in the file"),
    Unavailable("eval_file_name", _ON, "validation has a section of its own", "validation.data_args.file_name"),
    Unavailable("max_samples", _ON, "files are used whole"),
)
_SAMPLING = (
    Unavailable("length_penalty", lambda value: value != 1.0, "it is for beam search, which training cannot use"),
    Unavailable("include_stop_str_in_output", lambda value: value is False, "a stop string stays in the response"),
)
_CORRECTION = (
    Unavailable("detach", lambda is_on: not is_on, "no gradient flows through a weight that corrects for the engine"),
)
_REWARD = (
    Unavailable(
        "response_length_penalty_coef",
        _ON,
        "no reward for length is added",
        "a reward of your own, which knows the response",
    ),
    Unavailable("use_local", lambda is_on: not is_on, "programs run in the sandbox of this machine", "use_local: true"),
    Unavailable(
        "response_filter_config",
        lambda config: config.type != "no_filter",
        "single responses are not filtered",
        "query_filter_config, which keeps or drops a prompt's responses together",
    ),
)


def unavailable_problems(config: BaseConfig) -> Iterator[Problem]:
    """A problem for every key that asks for what this version cannot do."""
    if isinstance(config, AgenticConfig):
        yield from _agentic(config)
        return
    if not isinstance(config, RLVRConfig):
        rule = "this version runs RLVR and agentic configs; others can be read and planned"
        yield Problem("", rule, None, is_not_built=True)
        return
    yield from _asked(config, "", _PIPELINE)
    for path, role in config.roles().items():
        yield from _role(path, role)
    for name, reward in config.rewards.items():
        yield from _asked(reward, f"rewards.{name}", _REWARD)
    if config.train_infer_correction is not None:
        weight = config.train_infer_correction.is_weight
        yield from _asked(weight, "train_infer_correction.is_weight", _CORRECTION)


def _agentic(config: AgenticConfig) -> Iterator[Problem]:
    yield from _asked(config, "", (*_PIPELINE, *_AGENTIC))
    for path, role in config.roles().items():
        yield from _role(path, role)
    for name in ("train_env_manager", "val_env_manager"):
        manager = getattr(config, name)
        if manager is not None:
            yield from _asked(manager.llm_proxy, f"{name}.llm_proxy", _PROXY)
    for tag in config.used_tags:
        if tag in config.custom_envs:
            yield from _asked(config.custom_envs[tag], f"custom_envs.{tag}", _ENVIRONMENT)
    if config.train_infer_correction is not None:
        weight = config.train_infer_correction.is_weight
        yield from _asked(weight, "train_infer_correction.is_weight", _CORRECTION)


def _role(path: str, role: WorkerConfig) -> Iterator[Problem]:
    yield from _asked(role, path, _ROLE)
    if role.worker_cls and not path.startswith("rewards.") and not role.worker_cls.startswith(_PUBLISHED_CLASSES):
        rule = "a worker class of your own is not part of this version; what a role does is its strategy's"
        yield Problem(f"{path}.worker_cls", rule, role.worker_cls, "leave the key out", is_not_built=True)
    if role.data_args is not None and path in ("actor_train", "validation"):
        yield from _asked(role.data_args, f"{path}.data_args", _DATA)
    if role.generating_args is not None and path in ("actor_infer", "validation"):
        yield from _asked(role.generating_args, f"{path}.generating_args", _SAMPLING)


def _asked(section: Any, path: str, table: tuple[Unavailable, ...]) -> Iterator[Problem]:
    for one in table:
        value = getattr(section, one.key, None)
        if value is not None and one.asks(value):
            shown = value if isinstance(value, str | int | float | bool) else None
            yield Problem(f"{path}.{one.key}" if path else one.key, one.rule, shown, one.hint, is_not_built=True)
