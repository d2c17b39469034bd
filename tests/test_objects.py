from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.objects import ObjectError, absolute_spec, is_file_spec, our_name, resolve_object, spec_problem

BUILTINS = {"ordered": "collections:OrderedDict", "path_join": "posixpath:join"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_things.py"
    path.write_text(
        "import beside\n\n\nclass Thing:\n    class Inner:\n        pass\n\n\ndef make():\n    return beside.VALUE\n"
    )
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    return path


def message(spec: str) -> str:
    with pytest.raises(ObjectError) as caught:
        resolve_object(spec, BUILTINS, "thing")
    return str(caught.value)


def test_a_built_in_name_a_dotted_path_and_a_file_lead_to_the_object(file: Path) -> None:
    import collections

    assert resolve_object("ordered", BUILTINS, "thing") is collections.OrderedDict
    assert resolve_object("collections:OrderedDict", {}, "thing") is collections.OrderedDict
    assert resolve_object("collections.OrderedDict", {}, "thing") is collections.OrderedDict
    assert resolve_object(f"{file}:make", {}, "thing")() == 7
    assert resolve_object(f"{file}:Thing.Inner", {}, "thing").__name__ == "Inner"


def test_a_file_is_loaded_once_and_its_objects_can_be_pickled(file: Path) -> None:
    thing = resolve_object(f"{file}:Thing", {}, "thing")
    assert resolve_object(f"{file}:Thing", {}, "thing") is thing
    assert type(pickle.loads(pickle.dumps(thing()))) is thing


def test_an_object_of_a_file_travels_to_a_process_that_resolved_the_same_spec(file: Path, tmp_path: Path) -> None:
    thing = resolve_object(f"{file}:Thing", {}, "thing")
    pickled = tmp_path / "thing.pickle"
    pickled.write_bytes(pickle.dumps(thing()))
    code = (
        "import pickle, sys\n"
        "from roll_core.objects import resolve_object\n"
        "thing = resolve_object(sys.argv[1], {}, 'thing')\n"
        "print(type(pickle.load(open(sys.argv[2], 'rb'))) is thing)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"{file}:Thing", str(pickled)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_relative_files_become_absolute_on_the_driver(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert absolute_spec("./my_things.py:make") == f"{file.resolve()}:make"
    assert absolute_spec("my_things.py:make", Path("/elsewhere")) == "/elsewhere/my_things.py:make"
    assert absolute_spec("collections:OrderedDict") == "collections:OrderedDict"
    assert resolve_object("my_things.py:make", {}, "thing")() == 7


def test_files_are_told_from_dotted_paths() -> None:
    assert all(is_file_spec(spec) for spec in ("a.py:b", "./a.py:b", "/x/a.py", "some/a:b"))
    assert not any(is_file_spec(spec) for spec in ("a", "a.b:c", "a.b.c", "a.python:b"))


def test_an_unknown_name_is_met_with_what_there_is_and_a_suggestion() -> None:
    assert message("orderd") == (
        "no thing named 'orderd'\n"
        "  built in: ordered, path_join\n"
        "  did you mean 'ordered'?\n"
        "  or name your own: package.module:name, ./file.py:name"
    )


def test_a_missing_module_is_told_from_a_missing_name() -> None:
    assert message("no_such_package.module:name").startswith("no module 'no_such_package' for thing 'no_such_package.")
    assert message("textwrap:dedant").endswith("  did you mean 'dedent'?")


def test_a_missing_file_and_a_missing_object_say_where_was_looked(file: Path) -> None:
    assert message("./nowhere.py:x").startswith("no file 'nowhere.py' for thing './nowhere.py:x'\n  looked at: /")
    assert message(f"{file}:mak") == (
        f"no 'mak' in {file} for thing '{file}:mak'\n  it has: Thing, make\n  did you mean 'make'?"
    )
    assert message(str(file)).endswith(f"  write: {file}:name")
    assert "neither a name nor a Python file" in message("folder/file:x")


def test_errors_while_importing_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken_thing.py"
    broken.write_text("import json\nVALUE = json.loads('{')\n")
    text = message(f"{broken}:VALUE")
    assert text.startswith(f"thing '{broken}:VALUE' cannot be imported: JSONDecodeError: Expecting property name")
    monkeypatch.syspath_prepend(tmp_path)
    assert message("broken_thing:VALUE").startswith("thing 'broken_thing:VALUE' cannot be imported: JSONDecodeError")
    needs = tmp_path / "needs_thing.py"
    needs.write_text("import no_such_dependency\n")
    assert "ModuleNotFoundError: No module named 'no_such_dependency'" in message("needs_thing:x")


def test_objects_of_the_running_script_are_refused_with_what_to_do() -> None:
    assert message("__main__:score").endswith("  name its file instead: ./script.py:name")


PUBLISHED = {
    "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker": "math_rule",
    "roll.pipeline.rlvr.rewards.code_sandbox_reward_worker.CodeSandboxRewardWorker": "code_sandbox",
    "roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker": "llm_judge",
    "roll.pipeline.rlvr.rewards.ifeval_rule_reward_worker.GeneralRuleRewardWorker": "ifeval",
    "roll.pipeline.rlvr.rewards.crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker": "crossthinkqa",
    "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker": "actor_pg",
    "roll.pipeline.base_worker.InferWorker": "infer",
    "roll.pipeline.agentic.env_manager.traj_env_manager.TrajEnvManager": "traj",
}


@pytest.mark.parametrize(("published", "name"), PUBLISHED.items())
def test_published_class_paths_have_a_name_here(published: str, name: str) -> None:
    assert our_name(published) == name
    assert absolute_spec(published) == name
    assert spec_problem(published, {name: "builtins:object"}, "thing") is None
    assert resolve_object(published, {name: "builtins:object"}, "thing") is object
    assert "is not in this version" in (spec_problem(published, {}, "thing") or "")


def test_published_paths_that_nobody_knows_are_refused_without_importing() -> None:
    assert (spec_problem("roll.pipeline.rlvr.rewards.new.NewWorker", BUILTINS, "thing") or "").startswith(
        "no thing named"
    )


def test_specs_are_checked_without_importing(file: Path) -> None:
    never = file.with_name("never_loaded.py")
    never.write_text("anything = 1\nraise RuntimeError('loaded')")
    assert spec_problem(f"{never}:anything", BUILTINS, "thing") is None
    assert spec_problem("some_package.module:name", BUILTINS, "thing") is None
    assert spec_problem("two words", BUILTINS, "thing") is not None
    assert not any(name.startswith("roll_file_") and name.endswith("never_loaded") for name in sys.modules)
