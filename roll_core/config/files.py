"""Puts a config together from its files: hydra reads them, in the order of their `defaults`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from omegaconf import DictConfig, OmegaConf

from roll_core.config.text import text_problem
from roll_core.errors import ConfigError, Problem

_MOST_FILES = 100


@dataclass(frozen=True)
class Composed:
    """A config's values, references not yet followed, and the files it includes that are not there."""

    config: DictConfig
    missing: list[str] = field(default_factory=list)


def compose_file(path: Path, choices: Sequence[str] = ()) -> Composed:
    """hydra's composition of one file; missing files count as empty. hydra's own state is put back.

    Args:
        choices: overrides that choose among included files.

    Raises:
        ConfigError: a file is no YAML mapping.
    """
    problem = text_problem(path)
    if problem is not None:
        raise ConfigError([problem], str(path))
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        composed, missing = _with_stand_ins(path, choices)
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
    return Composed(composed, sorted(missing))


def is_preset(name: str) -> bool:
    """Whether an included file holds nothing but a trainer's options, to which a config refers by the file's name."""
    return name.rpartition("/")[2].startswith("deepspeed_")


def _with_stand_ins(path: Path, choices: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """Compose with an empty file in the place of each one that hydra misses."""
    from hydra.core.config_store import ConfigStore
    from hydra.errors import MissingConfigException

    missing: list[str] = []
    store, stored = ConfigStore.instance(), None
    try:
        while True:
            try:
                return _compose(path, choices), missing
            except MissingConfigException as error:
                name = error.missing_cfg_file
                if not name or name in missing or len(missing) == _MOST_FILES:
                    raise
                # Not before hydra has put its own into the store, which it does once.
                stored = stored or copy.deepcopy(store.repo)
                missing.append(name)
                folder, _, file = name.rpartition("/")
                store.store(name=file, node={}, group=folder or None)
    finally:
        store.repo = stored or store.repo


def _compose(path: Path, choices: Sequence[str]) -> DictConfig:
    from hydra import compose, initialize_config_dir

    with (
        warnings.catch_warnings(),
        initialize_config_dir(version_base="1.3", config_dir=str(path.parent), job_name="roll"),
    ):
        # Published configs have no `_self_`; hydra then lets the file win over what it includes, which is meant.
        warnings.filterwarnings("ignore", message=".*missing `_self_`.*")
        return cast(DictConfig, compose(config_name=path.name, overrides=list(choices)))


def _hydra_problem(error: Exception) -> Problem:
    from hydra.errors import MissingConfigException

    # Some of hydra's errors have no text of their own.
    said = str(error).strip() or str(error.__cause__ or error.__context__ or "").strip() or type(error).__name__
    lines = [line.strip() for line in said.splitlines() if line.strip()]
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
        hints = {"duplicate key": "a key may stand only once", "'\\t'": "spaces in the place of the tab"}
        hint = next((hint for sign, hint in hints.items() if sign in str(error.problem)), "")
        return Problem("", f"is no YAML{where}: {error.problem}", None, hint)
    if isinstance(error, yaml.YAMLError | UnicodeDecodeError):
        return Problem("", f"is no YAML: {' '.join(str(error).split())}")
    if isinstance(error, RecursionError):
        return Problem("", "is nested too deeply to be read")
    if isinstance(error, OmegaConfBaseException | ValueError | OSError):
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        return Problem("", f"cannot be read: {said}", None, "a mapping of keys to values")
    return None
