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
    with pytest.raises(ObjectError, match=r"cannot be made with options {'half': 1.0}: .*unexpected keyword"):
        make_reward(f"{ODD}:Halves", {"half": 1.0})


def test_what_is_no_reward_is_refused() -> None:
    with pytest.raises(
        ObjectError, match=r"is a int\n  it must be a subclass of roll_core.rewards.Reward, or a function"
    ):
        make_reward(f"{ODD}:NOT_A_REWARD")
    with pytest.raises(ObjectError, match="is the class Path, which is no Reward"):
        make_reward("pathlib:Path")


def test_rewards_known_from_elsewhere_are_not_taken_for_mistakes() -> None:
    with pytest.raises(ObjectError) as caught:
        make_reward("roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker")
    assert str(caught.value) == (
        "reward 'roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker' (llm_judge)"
        " is not in this version\n"
        "  built in: code_sandbox, math_rule\n"
        "  or name your own: package.module:name, ./file.py:name"
    )
