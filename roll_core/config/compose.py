"""Reads a config: hydra puts the files together, overrides are applied, and the result is validated."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

from omegaconf import DictConfig, OmegaConf

from roll_core.config.interpolation import referenced_keys, resolved
from roll_core.config.kinds import kind_of_config, model_of
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
        ConfigError: the file is no YAML mapping, or includes what is not there.
    """
    parsed, problems = parse_overrides(overrides)
    composed = _compose(path, [one.text for one in parsed if not one.path])
    own = _top_level_keys(path)
    kind = kind_of_config([str(key) for key in composed], pipeline)
    model = model_of(kind)
    problems += apply_overrides(composed, [one for one in parsed if one.path], model)
    referenced = referenced_keys(composed)
    plain, broken = resolved(composed)
    problems += broken
    written = own | {one.path[0] for one in parsed if one.path}
    result = validate(plain, model, referenced=referenced, included=frozenset(plain) - written)
    config = result.config
    if config is not None:
        config = _named(config, path, plain)
        if "hydra" in own:
            config.notices.insert(0, f"hydra: has no effect; {BaseConfig.without_effect['hydra']}")
        config.notices.extend(notices_of(config))
    suspect = result.suspect | {_last(problem.path) for problem in broken}
    return Reading(str(path), kind, config, problems + result.problems, frozenset(suspect))


def _required(reading: Reading) -> BaseConfig:
    if reading.problems or reading.config is None:
        raise ConfigError([*reading.problems, *reading.rule_problems()], reading.source)
    return reading.config


def _named(config: C, path: Path, plain: dict[str, Any]) -> C:
    config._source = str(path)
    if "exp_name" not in plain:
        config.__dict__["exp_name"] = path.stem
    return config


def _last(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0]


def _compose(path: Path, choices: list[str]) -> DictConfig:
    """hydra's composition of one file. hydra's own state is put back, and no folder is made."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with (
            warnings.catch_warnings(),
            initialize_config_dir(version_base="1.3", config_dir=str(path.parent), job_name="roll"),
        ):
            # Published configs have no `_self_`; hydra then lets the file win over what it includes, which is meant.
            warnings.filterwarnings("ignore", message=".*missing `_self_`.*")
            composed = compose(config_name=path.name, overrides=choices)
    except HydraException as error:
        raise ConfigError([_hydra_problem(error)], str(path)) from error
    except Exception as error:
        problem = _yaml_problem(error)
        if problem is None:
            raise
        raise ConfigError([problem], str(path)) from error
    finally:
        GlobalHydra.instance().clear()
        if previous is not None:
            GlobalHydra.instance().initialize(previous)
    OmegaConf.set_struct(composed, False)
    return cast(DictConfig, composed)


def _hydra_problem(error: Exception) -> Problem:
    from hydra.errors import MissingConfigException

    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if isinstance(error, MissingConfigException):
        hint = "a path relative to this file, without its ending"
        return Problem("defaults", "includes a file that is not there", error.missing_cfg_file, hint)
    if "must be a DictConfig" in lines[0]:
        return Problem("", "must be a mapping of keys to values, it holds a list")
    return Problem("", "cannot be put together: " + " ".join(lines[:3]))


def _yaml_problem(error: Exception) -> Problem | None:
    import yaml
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        hint = "a key may stand only once" if "duplicate key" in str(error.problem) else ""
        return Problem("", f"is no YAML{where}: {error.problem}", None, hint)
    if isinstance(error, yaml.YAMLError | UnicodeDecodeError):
        return Problem("", f"is no YAML: {' '.join(str(error).split())}")
    if isinstance(error, OmegaConfBaseException | ValueError | OSError):
        return Problem("", f"cannot be read: {str(error).strip().splitlines()[0]}", None, "a mapping of keys to values")
    return None


def _top_level_keys(path: Path) -> frozenset[str]:
    """Keys that the file itself has; the others come from what it includes."""
    loaded = OmegaConf.load(path)
    return frozenset(str(key) for key in loaded) if isinstance(loaded, DictConfig) else frozenset()
