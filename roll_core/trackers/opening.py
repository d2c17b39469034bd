"""From `track_with` and `tracker_kwargs` to the trackers of a run."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.errors import ConfigError, Problem, RollError
from roll_core.objects import resolve_object, spec_problem
from roll_core.trackers.base import RunInfo, Tracker
from roll_core.trackers.jsonl import JsonlTracker
from roll_core.trackers.redact import hide, redact, reveal, secret_values
from roll_core.trackers.run_trackers import RunTrackers

BUILTIN_TRACKERS: Mapping[str, str] = {
    "jsonl": "roll_core.trackers.jsonl:JsonlTracker",
    "stdout": "roll_core.trackers.stdout:StdoutTracker",
    "swanlab": "roll_core.trackers.swanlab_tracker:SwanlabTracker",
    "tensorboard": "roll_core.trackers.tensorboard:TensorboardTracker",
    "trackio": "roll_core.trackers.trackio_tracker:TrackioTracker",
    "wandb": "roll_core.trackers.wandb_tracker:WandbTracker",
}


def tracker_problems(
    track_with: str | Sequence[str] | None, tracker_kwargs: Mapping[str, Any], *, is_here: bool = True
) -> list[Problem]:
    """What in these two keys cannot work. Imports none of the tracking libraries, and nothing of the user's.

    Args:
        is_here: the run is on this machine, so its packages count.
    """
    names = _names(track_with)
    problems = []
    classes = {}
    for name in names:
        wrong = spec_problem(name, BUILTIN_TRACKERS, "tracker")
        if wrong is not None:
            rule, _, hint = wrong.partition("\n")
            problems.append(Problem("track_with", rule, hint=" ".join(hint.split())))
        elif name in BUILTIN_TRACKERS:
            classes[name] = resolve_object(name, BUILTIN_TRACKERS, "tracker")
    if is_here:
        missing = [_missing_package(name, found) for name, found in classes.items()]
        problems += [problem for problem in missing if problem is not None]
    if len(classes) == len(names):
        problems += _options(classes, tracker_kwargs)[1]
    return problems


def open_trackers(
    track_with: str | Sequence[str] | None, tracker_kwargs: Mapping[str, Any], run: RunInfo
) -> RunTrackers:
    """The trackers of a run, metrics.jsonl always among them.

    Args:
        track_with: a built-in name, a dotted path or a file path, or several; None for metrics.jsonl alone.
        tracker_kwargs: keyword arguments. With several trackers each takes the keys it knows; `{wandb: {...}}` gives
            keys to one of them.
        run: its `config` may hold secrets; the trackers get it without.

    Raises:
        ConfigError: a name, a package or a key is wrong.
        ObjectError: a dotted path or file path does not lead to a tracker.
        RollError: a tracker's folder or file cannot be written.
    """
    problems = tracker_problems(track_with, tracker_kwargs)
    if problems:
        raise ConfigError(problems)
    classes = {name: resolve_object(name, BUILTIN_TRACKERS, "tracker") for name in _names(track_with)}
    strangers = [name for name, found in classes.items() if not _is_tracker(found)]
    if strangers:
        raise ConfigError([Problem("track_with", f"'{name}' is no roll_core.trackers.Tracker") for name in strangers])
    tracker_kwargs = reveal(tracker_kwargs)
    options, problems = _options(classes, tracker_kwargs)
    for name, found in classes.items():
        if (missing := _missing_package(name, found)) is not None:
            problems.append(missing)
    if problems:
        raise ConfigError(problems)
    secrets = secret_values(tracker_kwargs) | secret_values(run.config)
    show = run.warn
    run = dataclasses.replace(run, config=redact(run.config), warn=lambda text: show(hide(text, secrets)))
    trackers: dict[str, Tracker] = {}
    for name, found in ({"jsonl": JsonlTracker} | classes).items():
        try:
            trackers[name] = found(run, **options.get(name, {}))
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise RollError(f"tracker {name} cannot be opened: {error.strerror or error}{where}") from error
    return RunTrackers(trackers, run.warn)


def _names(track_with: str | Sequence[str] | None) -> list[str]:
    if track_with is None:
        return []
    return [track_with] if isinstance(track_with, str) else list(dict.fromkeys(track_with))


def _is_tracker(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Tracker)


def _missing_package(name: str, tracker: type[Tracker]) -> Problem | None:
    if not tracker.needs or importlib.util.find_spec(tracker.needs) is not None:
        return None
    return Problem(
        "track_with",
        f"'{name}' needs the package {tracker.needs}, which is not installed",
        hint=f"pip install {tracker.needs}, or track_with: tensorboard",
    )


def _options(
    classes: Mapping[str, type[Tracker]], tracker_kwargs: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """The keyword arguments of each tracker, and a problem for every key that none of them takes."""
    options: dict[str, dict[str, Any]] = {name: {} for name in classes}
    problems = []
    for key, value in tracker_kwargs.items():
        given = {key: value}
        takers = list(classes)
        path = f"tracker_kwargs.{key}"
        if key in classes and isinstance(value, Mapping):
            given, takers = dict(value), [key]
        for inner_key, inner_value in given.items():
            inner_path = path if given.get(key) is value else f"{path}.{inner_key}"
            taking = [name for name in takers if _takes(classes[name], inner_key)]
            for name in taking:
                options[name][inner_key] = inner_value
            if not taking:
                problems.append(_unknown_key(inner_path, inner_key, {name: classes[name] for name in takers}))
    return options, problems


def _keys(tracker: type[Tracker]) -> list[str]:
    parameters = list(inspect.signature(tracker.__init__).parameters.values())[2:]
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


def _takes(tracker: type[Tracker], key: str) -> bool:
    parameters = inspect.signature(tracker.__init__).parameters.values()
    return key in _keys(tracker) or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _unknown_key(path: str, key: str, classes: Mapping[str, type[Tracker]]) -> Problem:
    known = {name: _keys(found) for name, found in classes.items()}
    close = difflib.get_close_matches(key, [name for names in known.values() for name in names], n=1)
    listed = "; ".join(f"{name} takes {', '.join(names) or 'no keys'}" for name, names in known.items())
    hint = f"did you mean '{close[0]}'? " if close else ""
    return Problem(path, "no tracker takes this key", hint=f"{hint}{listed or 'track_with names no tracker'}")
