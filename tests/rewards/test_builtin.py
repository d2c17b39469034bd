from __future__ import annotations

from pathlib import Path

import pytest

from roll_core.objects import ObjectError
from roll_core.rewards import RewardSample, Score
from roll_core.rewards.builtin import make_reward
from roll_core.rewards.math_rule import MathRuleReward

ODD = str(Path(__file__).parent / "samples" / "odd_rewards.py")


@pytest.mark.parametrize(
    "spec",
    [
        "math_rule",
        "roll_core.rewards.math_rule:MathRuleReward",
        "roll_core.rewards.math_rule.MathRuleReward",
        "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker",
    ],
)
def test_a_reward_has_a_name_and_dotted_paths(spec: str) -> None:
    assert isinstance(make_reward(spec), MathRuleReward)


def test_a_function_is_a_reward_and_takes_options(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def scaled(sample, factor=1.0):\n    return len(sample.response) * factor\n")
    sample = RewardSample("1", "", "abcde")
    assert make_reward(f"{file}:scaled").score(sample) == 5.0
    assert make_reward(f"{file}:scaled", {"factor": 0.1}).score(sample) == 0.5


def test_a_class_takes_options_and_says_which_it_refuses() -> None:
    assert isinstance(make_reward(f"{ODD}:Halves", {"whole": 1.0}).score(RewardSample("1", "", "")), Score)
    with pytest.raises(ObjectError, match=r"cannot be made with options half: .*unexpected keyword"):
        make_reward(f"{ODD}:Halves", {"half": 1.0})


def test_what_is_no_reward_is_refused() -> None:
    with pytest.raises(
        ObjectError, match=r"is a int\n  it must be a subclass of roll_core.rewards.Reward, or a function"
    ):
        make_reward(f"{ODD}:NOT_A_REWARD")
    with pytest.raises(ObjectError, match="is the class Path, which is no Reward"):
        make_reward("pathlib:Path")


GUIDE = "roll.pipeline.rlvr.rewards."


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("math_rule_reward_worker.MathRuleRewardWorker", "math_rule"),
        ("code_sandbox_reward_worker.CodeSandboxRewardWorker", "code_sandbox"),
        ("ifeval_rule_reward_worker.GeneralRuleRewardWorker", "ifeval"),
        ("crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker", "crossthinkqa"),
        ("multiple_choice_boxed_rule_reward_worker.MultipleChoiceBoxedRuleRewardWorker", "multiple_choice"),
    ],
)
def test_published_class_paths_lead_to_built_in_rewards(published: str, name: str) -> None:
    assert type(make_reward(GUIDE + published)) is type(make_reward(name))


@pytest.mark.parametrize(("name", "refused"), [("crossthinkqa", "rule"), ("ifeval", "rule")])
def test_options_that_a_reward_does_not_know_are_refused_with_those_it_does(name: str, refused: str) -> None:
    with pytest.raises(ObjectError, match=r"options reward_type: reward_type must be .*strict.*, not 'rule'"):
        make_reward(name, {"reward_type": refused})
