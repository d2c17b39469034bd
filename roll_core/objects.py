"""One way to name a piece of code in a config: a built-in name, a dotted path, or a file path.

Rewards, environments, trackers, losses and query filters are all named this way. What travels between processes
is the text, never the object: every process resolves it for itself, so nothing has to be picklable.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from roll_core.errors import RollError
from roll_core.source_names import name_problem


class ObjectError(RollError):
    """A name in the config does not lead to an object."""


# The dotted class paths that ROLL's guides and published configs use, and the names they have here.
PUBLISHED_NAMES: Mapping[str, str] = {
    "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker": "math_rule",
    "roll.pipeline.rlvr.rewards.code_sandbox_reward_worker.CodeSandboxRewardWorker": "code_sandbox",
    "roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker": "llm_judge",
    "roll.pipeline.rlvr.rewards.ifeval_rule_reward_worker.GeneralRuleRewardWorker": "ifeval",
    "roll.pipeline.rlvr.rewards.crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker": "crossthinkqa",
    "roll.pipeline.rlvr.rewards.multiple_choice_boxed_rule_reward_worker.MultipleChoiceBoxedRuleRewardWorker": (
        "multiple_choice"
    ),
    "roll.pipeline.base_worker.ActorWorker": "actor",
    "roll.pipeline.base_worker.CriticWorker": "critic",
    "roll.pipeline.base_worker.InferWorker": "infer",
    "roll.pipeline.rlvr.actor_worker.ActorWorker": "actor",
    "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker": "actor_pg",
    "roll.pipeline.agentic.agentic_actor_worker.ActorWorker": "actor",
    "roll.pipeline.agentic.agentic_actor_pg_worker.ActorPGWorker": "actor_pg",
    "roll.pipeline.agentic.environment_worker.EnvironmentWorker": "environment",
    "roll.pipeline.rlvr.rlvr_rollout_pipeline.RLVRRolloutPipeline": "rollout",
    "roll.pipeline.agentic.agentic_rollout_pipeline.AgenticRolloutPipeline": "rollout",
    "roll.pipeline.agentic.env_manager.traj_env_manager.TrajEnvManager": "traj",
    "roll.pipeline.agentic.env_manager.step_env_manager.StepEnvManager": "step",
    "roll.pipeline.agentic.env_manager.step_concat_env_manager.StepConcatEnvManager": "step_concat",
    "roll.pipeline.agentic.env_manager.vl_traj_env_manager.VLTrajEnvManager": "vl_traj",
}

# Modules of the published classes have moved between releases, so a class name alone is enough inside these packages.
_PUBLISHED_PACKAGES = ("roll.pipeline.rlvr.rewards.", "roll.pipeline.agentic.env_manager.")
_PUBLISHED_CLASSES = {
    path.rpartition(".")[2]: name for path, name in PUBLISHED_NAMES.items() if path.startswith(_PUBLISHED_PACKAGES)
}


def our_name(spec: str) -> str:
    """The name used here for a class path from ROLL's published configs; any other spec comes back unchanged."""
    if spec in PUBLISHED_NAMES:
        return PUBLISHED_NAMES[spec]
    if spec.startswith(_PUBLISHED_PACKAGES):
        return _PUBLISHED_CLASSES.get(spec.rpartition(".")[2], spec)
    return spec


def published_path_meant(spec: str) -> str | None:
    """The class path of ROLL's published configs that this spec misspells by about one letter, or None."""
    if spec in PUBLISHED_NAMES or our_name(spec) != spec:
        return None
    paths = {path.rpartition(".")[2]: path for path in PUBLISHED_NAMES if path.startswith(_PUBLISHED_PACKAGES)}
    # Published class names differ from each other by three letters and more.
    close = difflib.get_close_matches(spec.rpartition(".")[2], paths, n=1, cutoff=0.95)
    return paths[close[0]] if close else None


def is_file_spec(spec: str) -> bool:
    """Whether a spec names a file: `./my_reward.py:score`."""
    path = spec.partition(".py:")[0] + ".py" if ".py:" in spec else spec
    return path.endswith(".py") or "/" in path


def absolute_spec(spec: str, folder: Path | None = None) -> str:
    """A spec that means the same in every process: relative file paths are made absolute.

    `folder` is what relative paths are relative to (the working directory). Call this on the driver, because a
    remote worker has another working directory.
    """
    if not is_file_spec(spec):
        return our_name(spec)
    path, name = _split_file_spec(spec)
    base = Path.cwd() if folder is None else folder
    return f"{(base / path.expanduser()).resolve()}:{name}" if name else str((base / path.expanduser()).resolve())


def spec_problem(spec: str, builtins: Mapping[str, str], kind: str) -> str | None:
    """What is wrong with a spec, as far as can be told without importing anything; None if nothing is."""
    name = our_name(spec)
    if name in builtins:
        return None
    if name in PUBLISHED_NAMES.values():
        return _not_built(spec, name, builtins, kind)
    if is_file_spec(spec):
        return _file_problem(spec, kind)
    if name.startswith(("__main__:", "__main__.")):
        return (
            f"{kind} '{spec}' is in the script being run, which other processes cannot import\n"
            "  name its file instead: ./script.py:name"
        )
    if name.startswith("roll.pipeline.") or not _is_dotted(name):
        return _unknown(spec, builtins, kind)
    return None


def resolve_object(spec: str, builtins: Mapping[str, str], kind: str) -> Any:
    """The object that a spec names.

    Args:
        spec: a key of `builtins`; `package.module:thing` or `package.module.thing`; or `path/to/file.py:thing`.
            `thing` may be dotted (`Outer.inner`). Class paths of ROLL's published configs are understood.
        builtins: the built-in names of this kind, each with its `package.module:thing`.
        kind: what the object is, for messages: "reward", "environment", ...

    Raises:
        ObjectError: nothing has that name, or its module cannot be imported (the import error is quoted).
    """
    problem = spec_problem(spec, builtins, kind)
    if problem is not None:
        raise ObjectError(problem)
    name = our_name(spec)
    if name in builtins:
        return _import_dotted(builtins[name], spec, kind)
    if is_file_spec(spec):
        path, attribute = _split_file_spec(absolute_spec(spec))
        return _attribute(_load_file(path, spec, kind), attribute, spec, kind)
    return _import_dotted(name, spec, kind)


def _split_file_spec(spec: str) -> tuple[Path, str]:
    path, separator, name = spec.rpartition(":")
    return (Path(path), name) if separator and path.endswith(".py") else (Path(spec), "")


def _is_dotted(name: str) -> bool:
    module, separator, attribute = name.partition(":")
    parts = f"{module}.{attribute}".split(".") if separator else module.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _file_problem(spec: str, kind: str) -> str | None:
    path, name = _split_file_spec(spec)
    if path.suffix != ".py":
        return f"{kind} '{spec}' is neither a name nor a Python file\n  write: path/to/file.py:name"
    if not path.expanduser().is_file():
        return f"no file '{path}' for {kind} '{spec}'\n  looked at: {Path(absolute_spec(str(path)))}"
    if not name or not all(part.isidentifier() for part in name.split(".")):
        return f"{kind} '{spec}' does not say which object of the file it means\n  write: {path}:name"
    return name_problem(path.expanduser(), name.partition(".")[0], f"{kind} '{spec}'")


def _not_built(spec: str, name: str, builtins: Mapping[str, str], kind: str) -> str:
    shown = f"'{spec}'" if spec == name else f"'{spec}' ({name})"
    return (
        f"{kind} {shown} is not in this version\n"
        f"  built in: {', '.join(sorted(builtins)) or 'none'}\n"
        f"  or name your own: package.module:name, ./file.py:name"
    )


def _unknown(spec: str, builtins: Mapping[str, str], kind: str) -> str:
    close = difflib.get_close_matches(our_name(spec).rpartition(".")[2] or spec, list(builtins), n=1, cutoff=0.6)
    path = published_path_meant(spec)
    meant = path if path is not None and our_name(path) in builtins else close[0] if close else None
    hint = f"\n  did you mean '{meant}'?" if meant else ""
    return (
        f"no {kind} named '{spec}'\n"
        f"  built in: {', '.join(sorted(builtins)) or 'none'}{hint}\n"
        f"  or name your own: package.module:name, ./file.py:name"
    )


def _import_dotted(dotted: str, spec: str, kind: str) -> Any:
    module, separator, attribute = dotted.partition(":")
    if not separator:
        module, _, attribute = dotted.rpartition(".")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and f"{module}.".startswith(f"{missing}."):
            raise ObjectError(
                f"no module '{missing}' for {kind} '{spec}'\n  searched: the folders of sys.path\n"
                f"  try: install the package, set PYTHONPATH, or name a file: ./file.py:{attribute}"
            ) from error
        raise ObjectError(_import_failure(spec, kind, error)) from error
    except Exception as error:
        raise ObjectError(_import_failure(spec, kind, error)) from error
    return _attribute(loaded, attribute, spec, kind)


def _load_file(path: Path, spec: str, kind: str) -> ModuleType:
    # The name depends on the path alone, so a class pickled here is found by a process that resolved the same spec.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"roll_file_{digest}_{path.stem}" if path.stem.isidentifier() else f"roll_file_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ObjectError(f"{kind} '{spec}': Python cannot load '{path}'")
    module = importlib.util.module_from_spec(found)
    # Modules that lie beside the file can be imported by it, as if it were run as a script.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ObjectError(_import_failure(spec, kind, error)) from error
    return module


def _import_failure(spec: str, kind: str, error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    kept = "\n".join(f"    {line}" for line in lines[-8:])
    return f"{kind} '{spec}' cannot be imported: {type(error).__name__}: {error}\n{kept}"


def _attribute(module: ModuleType, attribute: str, spec: str, kind: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ObjectError(_no_attribute(module, attribute, spec, kind))
        found = getattr(found, part)
    return found


def _no_attribute(module: ModuleType, attribute: str, spec: str, kind: str) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    close = difflib.get_close_matches(attribute, own, n=1, cutoff=0.6)
    hint = f"\n  did you mean '{close[0]}'?" if close else ""
    where = module.__file__ or module.__name__
    return f"no '{attribute}' in {where} for {kind} '{spec}'\n  it has: {', '.join(own) or 'nothing callable'}{hint}"
