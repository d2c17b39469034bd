"""Reads a config: hydra puts the files together, overrides are applied, and the result is validated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from omegaconf import DictConfig, OmegaConf

from roll_core.config.files import compose_file, is_preset
from roll_core.config.interpolation import referenced_keys, resolved
from roll_core.config.keys import UNKNOWN_KEY, has_no_effect
from roll_core.config.kinds import hint_for_foreign_key, kind_of_config, model_of
from roll_core.config.locate import find_config, find_file
from roll_core.config.overrides import apply_overrides, parse_overrides
from roll_core.config.pipeline import BaseConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.rules import notices_of, problems_of
from roll_core.config.validation import validate
from roll_core.errors import ConfigError, Problem

C = TypeVar("C", bound=BaseConfig)


@dataclass(frozen=True)
class Reading:
    """What was made of a config file.

    `problems` are those of reading it: keys, types, references. Where there are any, `config` was made without
    what they are about (None where nothing could be made) and must not be run; `suspect` names those keys.
    """

    source: str
    pipeline: str
    config: BaseConfig | None
    problems: list[Problem] = field(default_factory=list)
    suspect: frozenset[str] = frozenset()

    def rule_problems(self) -> list[Problem]:
        """Problems between keys; without those that rest on a value which could not be read."""
        return [] if self.config is None else self.sound(problems_of(self.config))

    def sound(self, problems: Sequence[Problem]) -> list[Problem]:
        """Those of the problems that do not rest on a value which could not be read."""
        words = [re.compile(rf"\b{re.escape(name)}\b") for name in self.suspect]
        return [one for one in problems if not any(word.search(f"{one.path} {one.rule}") for word in words)]


@overload
def load_config(
    config_path: str | Path, config_name: str, overrides: Sequence[str] = (), pipeline: Literal["rlvr"] = "rlvr"
) -> RLVRConfig: ...


@overload
def load_config(
    config_path: str | Path, config_name: str, overrides: Sequence[str] = (), *, pipeline: str
) -> BaseConfig: ...


def load_config(
    config_path: str | Path, config_name: str, overrides: Sequence[str] = (), pipeline: str = "rlvr"
) -> BaseConfig:
    """The config `config_name` in the folder `config_path`, with overrides such as `max_steps=3`.

    Args:
        config_path: absolute, or relative to the working directory or to `examples/`.
        pipeline: whose keys are allowed; "auto" tells by the keys.

    Raises:
        ConfigError: with every problem of keys, types, references and rules, where the config cannot be read. A
            config that can be read is returned even if it breaks rules: see `roll_core.config.rules.problems_of`.
    """
    return _required(read_config(find_config(config_path, config_name), overrides, pipeline))


def load_config_file(path: str | Path, overrides: Sequence[str] = (), pipeline: str = "auto") -> BaseConfig:
    """The same, by a file's path."""
    return _required(read_config(find_file(path), overrides, pipeline))


def read_config(path: Path, overrides: Sequence[str] = (), pipeline: str = "auto") -> Reading:
    """Everything that can be said about a config file, whatever is wrong in it.

    Raises:
        ConfigError: the file is no YAML mapping.
    """
    parsed, problems = parse_overrides(overrides)
    files = compose_file(path, [one.text for one in parsed if not one.path])
    composed = files.config
    own = _top_level_keys(path)
    kind = kind_of_config([str(key) for key in composed], pipeline)
    model = model_of(kind)
    problems += apply_overrides(composed, [one for one in parsed if one.path], model)
    referenced = referenced_keys(composed)
    plain, broken = resolved(composed)
    problems += [_missing_file(name) for name in files.missing if not is_preset(name)]
    ignored, broken = _without_effect(broken, model)
    problems += broken
    written = own | {one.path[0] for one in parsed if one.path}
    result = validate(plain, model, referenced=referenced, included=frozenset(plain) - written)
    found = [_with_owner(problem, kind) for problem in result.problems]
    config = result.config
    if config is not None:
        config = _named(config, path, plain)
        if "hydra" in own:
            config.notices.insert(0, f"hydra: has no effect; {BaseConfig.without_effect['hydra']}")
        config.notices.extend([*ignored, *_missing_presets(files.missing, broken), *notices_of(config)])
    suspect = result.suspect | {_last(problem.path) for problem in broken}
    return Reading(str(path), kind, config, problems + found, frozenset(suspect))


def _with_owner(problem: Problem, kind: str) -> Problem:
    """An unknown top-level key with the pipelines that have it; where none has, with what it may have meant."""
    if problem.rule != UNKNOWN_KEY or "." in problem.path:
        return problem
    return replace(problem, hint=hint_for_foreign_key(problem.path, kind) or problem.hint)


def _required(reading: Reading) -> BaseConfig:
    if reading.problems or reading.config is None:
        raise ConfigError([*reading.problems, *reading.rule_problems()], reading.source)
    return reading.config


def _named(config: C, path: Path, plain: dict[str, Any]) -> C:
    config._source = str(path)
    if "exp_name" not in plain:
        config.__dict__["exp_name"] = path.stem
    return config


def _missing_file(name: str) -> Problem:
    hint = "a path relative to this file, without its ending"
    return Problem("defaults", "includes a file that is not there", name, hint)


def _missing_presets(missing: Sequence[str], broken: Sequence[Problem]) -> list[str]:
    """Published configs include files of a trainer's options that are not published, and use few of them or none."""
    used = " ".join(str(problem.value) for problem in broken)
    presets = [name for name in missing if is_preset(name) and name.rpartition("/")[2] not in used]
    return [f"defaults: {', '.join(presets)}: not there, and nothing refers to it"] if presets else []


def _without_effect(broken: Sequence[Problem], model: type[BaseConfig]) -> tuple[list[str], list[Problem]]:
    """References that lead nowhere, told apart: from keys that do nothing anyway, and the others."""
    dead = {problem.path: has_no_effect(model, tuple(problem.path.split("."))) for problem in broken}
    said = [f"{path}: has no effect; {reason}" for path, reason in dead.items() if reason]
    return said, [problem for problem in broken if not dead[problem.path]]


def _last(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0]


def _top_level_keys(path: Path) -> frozenset[str]:
    """Keys that the file itself has; the others come from what it includes."""
    loaded = OmegaConf.load(path)
    return frozenset(str(key) for key in loaded) if isinstance(loaded, DictConfig) else frozenset()
