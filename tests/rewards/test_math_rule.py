from __future__ import annotations

import subprocess
import sys

import pytest

from roll_core.rewards import RewardSample, Score, Status
from roll_core.rewards.math_rule import MathRuleReward, check_ground_truth
from roll_core.testing.reward_contract import RewardContract

PROMPT = "user: Solve the problem. Put the final answer in a box.\nassistant:\n"

# Published faults of graders, each with the verdict that is right.
FAULTS = [
    (
        "<think>Adding gives 5.</think>\nMy first try was \\boxed{5}. I forgot the carry, so the answer is \\boxed{7}.",
        "7",
        1.0,
    ),
    ("<think>Each toss halves it.</think>\nThe probability is \\boxed{\\frac{1}{2^{80}}}.", "\\frac{1}{2^{81}}", 0.0),
    ("<think>3x = 9</think>\nThe answer is \\boxed{3}.", "3", 1.0),
    (
        "Subtract 5, then divide by 3.\nThe answer is \\boxed{3}.\n\nLet me know if you would like another method.",
        "3",
        1.0,
    ),
    (
        "<think>The denominator.</think>\nThe domain is \\boxed{(-\\infty,\\infty)}.",
        "(-\\infty,0)\\cup(0,\\infty)",
        0.0,
    ),
    ("<think>below zero</think>\nThe answer is \\boxed{-7}.", "7", 0.0),
    ("<think>a quarter</think>\nThe share is \\boxed{25\\%}.", "0.25", 1.0),
]


def graded(response: str, reference: str, prompt: str = PROMPT) -> Score:
    return MathRuleReward().score(RewardSample("1", prompt, response, reference))


@pytest.mark.parametrize(("response", "reference", "score"), FAULTS)
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT + "<think>\n"])
def test_faults_of_other_graders(response: str, reference: str, score: float, prompt: str) -> None:
    assert graded(response, reference, prompt).score == score
    assert graded(response, reference, prompt).status is Status.OK


def test_one_score_per_sample_and_the_whole_answer_is_read() -> None:
    responses = [
        "<think>a</think>\nThe answer is \\boxed{4}.",
        "I do not know.",
        "",
        "<think>a</think>\nThe answer is \\boxed{4}.",
        "<think>a</think>\nThe answer is \\boxed{137}.",
    ]
    scores = [graded(response, "4") for response in responses]
    assert [score.score for score in scores] == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert scores[1].reason == "no boxed answer"
    assert scores[-1].reason == "answered '137', the reference is '4'"


def test_an_empty_box_and_an_unreadable_one_are_wrong() -> None:
    assert graded("\\boxed{ }", "4") == Score(0.0, reason="the box is empty")
    unreadable = graded("\\boxed{\\frac{}{}}", "\\sqrt{2}")
    assert (unreadable.score, unreadable.status) == (0.0, Status.OK)
    assert unreadable.reason.startswith("the boxed answer cannot be read")


@pytest.mark.parametrize(
    "reference", ["", " ", "None", "null", "nan", "see solution", "The answer is 6", "\\frac{1}{2", "$$"]
)
def test_a_reference_that_is_no_answer_is_a_data_error_and_never_right(reference: str) -> None:
    assert check_ground_truth(reference) is not None
    for response in ("\\boxed{6}", f"\\boxed{{{reference}}}", "no idea"):
        assert graded(response, reference).status is Status.COULD_NOT_GRADE
        assert graded(response, reference).score == 0.0


@pytest.mark.parametrize("reference", ["6", "$6$", "\\boxed{6}", "6.0", " 6 "])
def test_a_reference_may_be_dressed(reference: str) -> None:
    assert check_ground_truth(reference) is None
    assert graded("\\boxed{6}", reference).score == 1.0
    assert graded("\\boxed{7}", reference).score == 0.0


def test_a_reference_that_the_parser_cannot_read_is_not_graded_as_wrong() -> None:
    for response in ("\\boxed{6}", "\\boxed{(1,2)}", "\\boxed{x+1}"):
        assert graded(response, "\\foo{3}+\\bar").status is Status.COULD_NOT_GRADE


def test_what_cannot_be_compared_is_not_graded_as_wrong() -> None:
    score = graded("\\boxed{e^{e^{e^{e^{10}}}}}", "\\sqrt{2}")
    assert score == Score(0.0, Status.COULD_NOT_GRADE, "a number too large to evaluate")


def test_plain_numbers_are_graded_without_importing_the_algebra_system() -> None:
    code = (
        "import sys\n"
        "from roll_core.rewards import RewardSample\n"
        "from roll_core.rewards.math_rule import MathRuleReward\n"
        "reward = MathRuleReward()\n"
        "pairs = [('7', '7'), ('0.5', '\\\\frac12'), ('25\\\\%', '0.25'), ('12,345', '12345'), ('(1,2)', '(1,2)')]\n"
        "samples = [RewardSample('1', '', f'\\\\boxed{{{answer}}}', gold) for answer, gold in pairs]\n"
        "scores = [reward.quick_score(sample) for sample in samples]\n"
        "print([score.score for score in scores], 'sympy' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1.0, 1.0, 1.0, 1.0, 1.0] False False"


class TestMathRuleContract(RewardContract):
    reward = "math_rule"
    correct = RewardSample("1", "2x = 4", "<think>x = 2</think>\n\\boxed{2}", "2")
    wrong = RewardSample("2", "2x = 4", "<think>x = 3</think>\n\\boxed{3}", "2")
