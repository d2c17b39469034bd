"""What a config needs of the machine it runs on: model folders, data files, checkpoints, packages, devices."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from roll_core.checkpoint.folder import CheckpointFolder
from roll_core.config.judges import judge_engine, judge_prompt
from roll_core.config.pipeline import BaseConfig
from roll_core.config.resolution import started_roles
from roll_core.config.reward_options import is_builtin, reward_name, reward_options
from roll_core.config.rlvr import RLVRConfig
from roll_core.config.role_sections import DataArgs
from roll_core.config.rules.rewards import is_published, reward_name_problems
from roll_core.data.images import why_no_images
from roll_core.data.jsonl import find_file, read_files
from roll_core.data.rows import Columns
from roll_core.data.tags import tag_routes
from roll_core.errors import ConfigError, DataError, Problem
from roll_core.objects import ObjectError, is_file_spec
from roll_core.rewards.base import RewardSample
from roll_core.rewards.builtin import make_reward
from roll_core.rewards.judge_prompts import row_problem

Grader = Callable[[RewardSample], str | None]
"""What is wrong with a row, told by the reward of its domain."""

QUICK_BYTES = 8 * 2**20
"""Data up to this size is read row by row by `roll check`, which must answer at once; a run reads all of it."""
_SHOWN = 20


def files_problems(config: BaseConfig, *, quick: bool = False) -> Iterator[Problem]:
    """Model folders, data files, rewards and checkpoints that are not there or cannot be used."""
    yield from _models(config)
    if isinstance(config, RLVRConfig):
        yield from reward_problems(config)
        yield from _data(config, quick)
        yield from _images(config)
    yield from _checkpoint(config)
    yield from _outputs(config)


def _models(config: BaseConfig) -> Iterator[Problem]:
    wanted: dict[str, str] = {}
    for path, role in started_roles(config).items():
        folder = role.model_args.model_name_or_path
        if folder is None and path.startswith("reward"):
            continue  # A judge's model has no default; a rule says so.
        key = f"{path}.model_args.model_name_or_path"
        default = getattr(config, "reward_pretrain" if path == "critic" else "pretrain", None)
        if folder is None:
            name = "reward_pretrain" if path == "critic" else "pretrain"
            if name not in wanted.values():
                yield Problem(name, f"a model's folder must be given for {path}", None, f"{name}: /models/my-model")
            continue
        shown = key if folder != default else ("reward_pretrain" if path == "critic" else "pretrain")
        wanted.setdefault(folder, shown)
    for folder, key in wanted.items():
        yield from _model(key, folder)


def _model(key: str, folder: str) -> Iterator[Problem]:
    path = Path(folder).expanduser()
    if not path.is_dir():
        rule = "there is no such folder; models are read from local folders, nothing is downloaded"
        is_hub_name = folder.count("/") == 1 and not folder.startswith((".", "/", "~"))
        hint = "fetch the model beforehand, then write the path of its folder"
        yield Problem(key, rule, folder, hint if is_hub_name else f"{hint}; looked at {path.absolute()}")
    elif not (path / "config.json").is_file():
        inside = sorted(child.name for child in path.iterdir())[:6]
        rule = f"the folder has no config.json, so it is no model; it has {', '.join(inside) or 'nothing'}"
        yield Problem(key, rule, folder, "the folder that save_pretrained wrote")


def reward_problems(config: RLVRConfig, *, is_here: bool = True) -> Iterator[Problem]:
    """Rewards that are not found by their names. Files are looked at here only; a built-in name is the same anywhere.

    Args:
        is_here: the run is on this machine, so its files count.
    """
    for name, reward in config.rewards.items():
        # Published classes are told by the rules, in runs and in plans.
        if not is_published(reward) and (is_here or not is_file_spec(reward.worker_cls or name)):
            yield from reward_name_problems(name, reward)


def _data(config: RLVRConfig, quick: bool) -> Iterator[Problem]:
    try:
        routes = tag_routes(config.rewards)
    except ConfigError:
        return
    training = config.actor_train.data_args
    default = (training.dataset_dir if training is not None else None) or ""
    sections = {} if config.is_rollout_only else {"actor_train.data_args": training}
    if config.validation is not None:
        sections["validation.data_args"] = config.validation.data_args
    for path, data in sections.items():
        if data is None or not data.file_name:
            continue
        folder = data.dataset_dir or default
        if quick and _size(data.file_name, folder) > QUICK_BYTES:
            yield from _existence(path, data.file_name, folder)
        else:
            yield from _rows(path, data, folder, routes, _graders(config))


def _images(config: RLVRConfig) -> Iterator[Problem]:
    """Images for a model that reads none."""
    data, folder = config.actor_train.data_args, config.actor_train.model_args.model_name_or_path
    if data is None or data.image is None or folder is None:
        return
    # A folder without a model is told of elsewhere.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        model_type = str(json.loads((Path(folder).expanduser() / "config.json").read_text())["model_type"])
        why = why_no_images(folder, model_type)
        if why is not None:
            yield Problem("actor_train.data_args.image", why, data.image, "leave the key out, or another model")


def _graders(config: RLVRConfig) -> dict[str, Grader]:
    """By domain, how a built-in reward tells of a row whether it could grade answers to it."""
    graders: dict[str, Grader] = {}
    for name, reward in config.rewards.items():
        if not is_builtin(name, reward):
            continue
        # Options that it refuses are told with the config's rules.
        with contextlib.suppress(ObjectError, TypeError):
            if judge_engine(config, name) is not None:
                graders[name] = partial(row_problem, judge_prompt(reward))
            else:
                graders[name] = make_reward(reward_name(name, reward), reward_options(name, reward)).row_problem
    return graders


def _rows(
    path: str, data: DataArgs, folder: str, routes: dict[str, str], graders: Mapping[str, Grader]
) -> Iterator[Problem]:
    rows, found = read_files(data.file_name or [], folder, routes, columns_of(data))
    for row in rows:
        if row.domain not in graders:
            continue
        sample = RewardSample(row.id, row.prompt, "", row.ground_truth, row.tag, row.fields)
        wrong = graders[row.domain](sample)
        if wrong is not None:
            where = f"{row.file}:{row.line}"
            # Rows with tests may hold a reference too, which nobody grades by.
            is_of_reference = bool(row.ground_truth) and "test_cases" not in row.fields
            found.append(Problem(f"{where}: ground_truth" if is_of_reference else where, wrong))
    for problem in found[:_SHOWN]:
        where = f"{path}.file_name: {problem.path}" if problem.path else f"{path}.file_name"
        yield Problem(where, problem.rule, problem.value, problem.hint)
    if len(found) > _SHOWN:
        yield Problem(f"{path}.file_name", f"and {len(found) - _SHOWN} more problems in the data")


def columns_of(data: DataArgs) -> Columns:
    """The columns that hold id, tag, messages, prompt and images, as `roll_core.data` takes them.

    Where `messages` is not named but `prompt` is, the questions are taken from the prompt column alone.
    """
    given = {"id": data.id, "tag": data.tag, "messages": data.messages, "prompt": data.prompt, "image": data.image}
    if data.prompt is not None and data.messages is None:
        given["messages"] = ""
    return Columns(**{name: column for name, column in given.items() if column is not None})


def _existence(path: str, files: list[str], folder: str) -> Iterator[Problem]:
    for name in files:
        try:
            find_file(name, folder)
        except DataError as error:
            yield Problem(f"{path}.file_name: {name}", str(error))


def _size(files: list[str], folder: str) -> int:
    total = 0
    for name in files:
        try:
            total += find_file(name, folder).stat().st_size
        except (DataError, OSError):
            continue
    return total


def _outputs(config: BaseConfig) -> Iterator[Problem]:
    """Folders that a run writes to, and that cannot be made or written."""
    folders = {"output_dir": config.output_dir, "logging_dir": config.logging_dir}
    if config.checkpoint_config is not None and config.checkpoint_config.output_dir:
        folders["checkpoint_config.output_dir"] = config.checkpoint_config.output_dir
    if config.rollout_dump_dir:
        folders["rollout_dump_dir"] = config.rollout_dump_dir
    for key, folder in folders.items():
        path = Path(folder).absolute()
        there = next(parent for parent in (path, *path.parents) if parent.exists())
        if not there.is_dir():
            yield Problem(key, f"cannot be made: {there} is a file", folder, "another folder")
        elif not os.access(there, os.W_OK | os.X_OK):
            yield Problem(key, f"cannot be written: this user may not write to {there}", folder, "another folder")


def _checkpoint(config: BaseConfig) -> Iterator[Problem]:
    asked = config.resume_from_checkpoint
    if not isinstance(asked, str):
        return
    if not Path(asked).expanduser().is_dir():
        folder = Path(asked).expanduser().parent
        whole = ", ".join(f"checkpoint-{step}" for step in CheckpointFolder(folder).steps())
        hint = f"in {folder} there are: {whole}" if whole else "true takes the newest one, false starts anew"
        yield Problem("resume_from_checkpoint", "there is no such folder", asked, hint)
