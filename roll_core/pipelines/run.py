"""Running a config from a terminal: decide, show, run, sum up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.config.agentic import AgenticConfig
from roll_core.config.compose import read_config
from roll_core.config.locate import find_file
from roll_core.config.pipeline import BaseConfig
from roll_core.config.policy import PPOConfig
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.runnable import require_read
from roll_core.display import RunDisplay
from roll_core.errors import ConfigError, Interrupted, Problem
from roll_core.pipelines.decide import decide
from roll_core.plugins import load_plugins

if TYPE_CHECKING:
    from roll_core.pipelines.start import Outcome


def run_file(path: str | Path, overrides: Sequence[str] = ()) -> Outcome:
    """Run a config file with overrides such as `max_steps=3`; see `run_config`."""
    return run_config(require_read(read_config(find_file(path), overrides), load_plugins()))


def run_config(config: BaseConfig) -> Outcome:
    """Run a config and show it on the terminal.

    Raises:
        RollError: whatever stops the run, the user included; the message says what was saved.
    """
    if not isinstance(config, RLVRConfig | AgenticConfig):
        kind = type(config).__name__
        rule = f"only RLVR and agentic configs run in this version, this is a {kind}"
        raise ConfigError([Problem("", rule)], config.source)
    setting = decide(config)
    from roll_core.checkpoint.claim import claimed
    from roll_core.pipelines.agentic_start import run_agentic
    from roll_core.pipelines.rollout import rollout_dir, run_rollout
    from roll_core.pipelines.start import run_rlvr

    run = run_rlvr if isinstance(config, RLVRConfig) else run_agentic
    if config.is_rollout_only:
        run = run_rollout

    with RunDisplay(-1 if config.is_rollout_only else config.max_steps, config.exp_name) as display:
        for notice in setting.notices:
            display.notice(notice)
        display.notice(f"platform {setting.resolved_platform.name}: {'; '.join(setting.resolved_platform.reasons)}")
        display.notice(f"workers write to {setting.log_dir}")
        try:
            folders = _written_folders(config)
            if config.is_rollout_only:
                folders = {config.run_dir: "output_dir", rollout_dir(config): "rollout_dump_dir"}
            make_folders(config, setting.log_dir)
            with claimed(folders, display.notice):
                outcome = run(setting, display)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from None
        files: dict[str, Path | str] = dict(outcome.locations)
        if outcome.checkpoint is not None:
            files["checkpoint"] = outcome.checkpoint
        display.summary(files, outcome.results, before=outcome.first_accuracy, after=outcome.last_accuracy)
    return outcome


def make_folders(config: PPOConfig, log_dir: Path) -> None:
    """Make the folders of logs and dumps before anything starts.

    Raises:
        ConfigError: one cannot be made. A plan asks the system for permission, which network file systems grant and
            then refuse.
    """
    folders = {"logging_dir": log_dir}
    if config.rollout_dump_dir is not None:
        folders["rollout_dump_dir"] = Path(config.rollout_dump_dir)
    for key, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = Problem(key, f"cannot be made: {error.strerror}", str(folder), "another folder")
            raise ConfigError([problem], config.source) from error


def _written_folders(config: PPOConfig) -> dict[Path, str]:
    """Folders that two runs at the same time would spoil for each other, and the keys that name them."""
    has_own = config.checkpoint_config is not None and config.checkpoint_config.output_dir
    key = "checkpoint_config.output_dir" if has_own else "output_dir"
    return {config.run_dir: "output_dir", config.checkpoint_dir: key}
