"""What the agentic examples' models copy is what they see when they play; runs of several seeds become a table."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from roll_core.inference import Completion, SamplingParams
from roll_core.rollout.env_episode import Episode, Plan, Style
from roll_core.rollout.environments import Observed
from tests.rollout.dialogues import byte_dialogue

EXAMPLES = Path(__file__).parents[2] / "examples"
LAKE, CALCULATOR = "agentic_frozen_lake", "agentic_calculator"


def load(path: Path) -> ModuleType:
    """A module by its file: those of two examples have the same names."""
    name = f"loaded_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for their module here.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def options(example: str) -> dict[str, Any]:
    [tag] = yaml.safe_load((EXAMPLES / example / "cpu.yaml").read_text())["custom_envs"].values()
    found: dict[str, Any] = tag["env_config"]
    return found


def shown(example: str, seed: int, count: int) -> list[Any]:
    endless: Iterator[Any] = load(EXAMPLES / example / "demonstrations.py").demonstrations(seed)
    return list(islice(endless, count))


@pytest.mark.parametrize("example", [LAKE, CALCULATOR])
def test_a_demonstration_has_the_tokens_that_the_model_sees_when_it_plays(example: str) -> None:
    dialogue = byte_dialogue()
    warm_start = load(EXAMPLES / "agentic_warm_start.py")
    for one in shown(example, 0, 30):
        played = Episode(Plan(0, 0, "It", 0, 0, 0), Style("It"), dialogue)
        played.begin(Observed(one.observations[0]))
        following = zip((*one.observations[1:], ""), (*one.roles[1:], "user"))
        for action, (observation, role) in zip(one.actions, following):
            request = played.request(SamplingParams(max_new_tokens=100), "train/1", seed_of=len)
            assert request is not None
            ids = tuple(dialogue.tokenizer(f"{action}<|im_end|>", add_special_tokens=False)["input_ids"])
            assert played.answered(Completion(request.request_id, ids, (-1.0,) * len(ids), "stop", 0)) == action
            played.observed(Observed(observation, is_tool=role == "tool"))
        [row] = played.rows
        ids, said = warm_start.sample_of(dialogue, one)
        assert ids == [*row.prompt_ids, *row.response_ids]
        assert said == [False] * len(row.prompt_ids) + row.mask


@pytest.mark.parametrize("example", [LAKE, CALCULATOR])
def test_a_seed_decides_what_is_shown(example: str) -> None:
    assert shown(example, 3, 20) == shown(example, 3, 20) != shown(example, 4, 20)


@pytest.mark.parametrize(("example", "maker"), [(LAKE, "make_lake"), (CALCULATOR, "make_calculator")])
def test_what_is_shown_comes_from_the_environment_of_the_config(example: str, maker: str) -> None:
    ours = getattr(load(EXAMPLES / example / "demonstrations.py"), maker)()
    config = type(ours)(**options(example))
    for seed in range(20):
        assert ours.reset(seed) == config.reset(seed)
        assert ours.step("Left") == config.step("Left")
    assert ours.max_steps == config.max_steps


def test_a_student_is_right_where_the_calculator_was_asked_as_it_should_be_and_never_by_chance() -> None:
    some = shown(CALCULATOR, 0, 1000)
    for one in some:
        has_result = any(
            role == "tool" and not text.startswith("error") for role, text in zip(one.roles, one.observations)
        )
        assert one.is_success == has_result
    assert 0.25 < sum(one.is_success for one in some) / 1000 < 0.36
    errors = {text.partition(":")[2].split("'")[0] for one in some for text in one.observations if "error" in text}
    assert errors == {" there is no tool ", ' calculator needs "expression"; it was given: text'}


def test_a_turn_of_an_episode_is_an_episode_of_one_turn() -> None:
    one = next(one for one in shown(CALCULATOR, 0, 100) if len(one.actions) == 3)
    assert [turn.actions for turn in one.turns()] == [(action,) for action in one.actions]
    assert [turn.observations for turn in one.turns()] == [(text,) for text in one.observations]


@pytest.mark.parametrize("example", [LAKE, CALCULATOR])
def test_a_run_prepares_its_own_example_and_no_other(example: str) -> None:
    folder = EXAMPLES / example
    code = "import run; print(run.prepare.__file__, run.prepare.STEPS, run.CONFIG.is_file())"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout.split() == [str(folder / "prepare.py"), "400", "True"], done.stderr


RUN = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("more", nargs="*")
given = parser.parse_args()
print("given", json.dumps(given.more))
if given.seed == 9:
    raise SystemExit(3)
print(f"RESULT before=0.{30 + given.seed} after=0.62 seconds=17")
"""


def seeds(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "it").mkdir()
    (folder / "it" / "run.py").write_text(RUN)
    command = [sys.executable, str(EXAMPLES / "seeds.py"), str(folder / "it"), "--folder", str(folder / "out")]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)


def test_seeds_become_a_table_and_each_has_its_own_folder(tmp_path: Path) -> None:
    done = seeds(tmp_path, "--seeds", "0", "1", "--", "a=1", "b=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "| | seed 0 | seed 1 |",
        "|---|---|---|",
        "| success | 0.30 -> 0.62 | 0.31 -> 0.62 |",
        "| seconds | 17 | 17 |",
    ]
    log = (tmp_path / "out" / "it-1" / "run.log").read_text()
    assert json.loads(log.splitlines()[0].removeprefix("given ")) == ["a=1", "b=2"]


@pytest.mark.parametrize(("number", "code"), [("1", 0), ("2", 1)])
def test_what_is_wanted_is_a_share_that_doubles(tmp_path: Path, number: str, code: int) -> None:
    assert seeds(tmp_path, "--seeds", number, "--wanted", "0.6").returncode == code


def test_a_run_that_fails_is_named_with_its_log(tmp_path: Path) -> None:
    done = seeds(tmp_path, "--seeds", "9")
    assert done.returncode == 1
    assert done.stderr.startswith("seed 9 ended with 3; ") and done.stderr.endswith("it-9/run.log says why\n")
