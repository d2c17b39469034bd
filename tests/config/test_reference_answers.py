"""A reference answer that no response can equal is found with the data, by file and line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.config.machine import files_problems
from roll_core.config.schema import RLVRConfig


def problems(folder: Path, small: Callable[..., RLVRConfig], truths: list[Any], **changes: Any) -> list[str]:
    rows = [
        {"id": str(number), "prompt": "p", "tag": "math_rule", "ground_truth": truth}
        for number, truth in enumerate(truths)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = small({"actor_train.data_args.dataset_dir": str(folder), **changes})
    return [str(problem) for problem in files_problems(config) if "train.jsonl" in problem.path]


def test_answers_that_can_be_compared_are_fine(tmp_path: Path, small: Callable[..., RLVRConfig]) -> None:
    assert (
        problems(tmp_path, small, ["6", "$6$", "\\boxed{6}", 6, "-1.5", "\\frac{1}{2}", "(-\\infty, 3)", "x = 2"]) == []
    )


@pytest.mark.parametrize("truth", ["None", "see solution", "", "\\frac{1}{2"])
def test_answers_that_cannot_are_named_by_line(tmp_path: Path, small: Callable[..., RLVRConfig], truth: str) -> None:
    [found] = problems(tmp_path, small, ["6", truth])
    assert "train.jsonl:2: ground_truth" in found


def test_a_reward_of_ones_own_may_have_other_references(tmp_path: Path, small: Callable[..., RLVRConfig]) -> None:
    own = {"rewards.math_rule.worker_cls": "json.dumps"}
    assert problems(tmp_path, small, ["see solution"], **own) == []


def test_tests_that_cannot_be_used_are_named_by_line(tmp_path: Path, small: Callable[..., RLVRConfig]) -> None:
    row = {"id": "1", "prompt": "p", "tag": "KodCode", "case_type": "pytest", "ground_truth": "def add(a, b): ..."}
    rows = [row | {"id": str(i), "test_cases": cases} for i, cases in enumerate(["[]", '[{"assert_code": "x = 1"}]'])]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = small({"actor_train.data_args.dataset_dir": str(tmp_path), "rewards": {"code_sandbox": {}}})
    found = [str(problem) for problem in files_problems(config) if "train.jsonl" in problem.path]
    assert len(found) == 2
    assert "train.jsonl:1: test_cases holds no case" in found[0]
    assert "train.jsonl:2: the tests hold no test" in found[1]
