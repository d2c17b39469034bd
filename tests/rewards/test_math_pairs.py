"""The table of pairs: every verdict is the mathematical one, and none is a guess."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.rewards import RewardSample, Status
from roll_core.rewards.math_rule import MathRuleReward, check_ground_truth

LINES = Path(__file__).with_name("math_pairs.txt").read_text(encoding="utf-8").splitlines()
PAIRS = [tuple(line.split(" || ")) for line in LINES if line and not line.startswith("#")]


def sample(reference: str, answer: str) -> RewardSample:
    return RewardSample("1", "", f"<think>hm</think> The answer is \\boxed{{{answer}}}.", reference)


def test_the_table_is_large_and_has_both_verdicts() -> None:
    assert len(PAIRS) >= 200
    assert {len(pair) for pair in PAIRS} == {3}
    assert all(sum(pair[0] == verdict for pair in PAIRS) >= 60 for verdict in ("right", "wrong"))


@pytest.mark.parametrize(("verdict", "reference", "answer"), PAIRS)
def test_pair(verdict: str, reference: str, answer: str) -> None:
    score = MathRuleReward().score(sample(reference, answer))
    assert (score.score, score.status) == (1.0 if verdict == "right" else 0.0, Status.OK), score.reason


@pytest.mark.parametrize(("verdict", "reference", "answer"), PAIRS)
def test_the_quick_verdict_agrees_where_there_is_one(verdict: str, reference: str, answer: str) -> None:
    score = MathRuleReward().quick_score(sample(reference, answer))
    assert score is None or (score.score, score.status) == (1.0 if verdict == "right" else 0.0, Status.OK)


@pytest.mark.parametrize("reference", sorted({pair[1] for pair in PAIRS}))
def test_references_of_the_table_pass_the_data_check_and_equal_themselves(reference: str) -> None:
    assert check_ground_truth(reference) is None
    assert MathRuleReward().score(sample(reference, reference)).score == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.3", "4.13.2"])
def test_all_pairs_have_their_verdicts_with_other_versions_of_the_parser(version: str, tmp_path: Path) -> None:
    # hydra-core holds the first; the second is what installs without it. It comes from the package index.
    package = f"antlr4-python3-runtime=={version}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), package]
    subprocess.run(install, check=True)
    code = (
        "from importlib.metadata import version\n"
        "from tests.rewards.test_math_pairs import PAIRS, sample\n"
        "from roll_core.rewards.math_rule import MathRuleReward\n"
        "reward = MathRuleReward()\n"
        "found = [(pair, reward.score(sample(*pair[1:])).score) for pair in PAIRS]\n"
        "wrong = [pair for pair, score in found if score != (pair[0] == 'right')]\n"
        "print(version('antlr4-python3-runtime'), len(found), wrong, reward.self_test())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout == f"{version} {len(PAIRS)} [] []\n", done.stderr
