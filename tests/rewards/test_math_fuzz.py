"""No text, however odd, makes the quick grader raise or take long, and both graders agree."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roll_core.rewards import RewardSample, Status
from roll_core.rewards.math_rule import MathRuleReward
from roll_core.rewards.mathematics.compare import quick_verdict, verdict
from roll_core.rewards.mathematics.exact import exact_value
from roll_core.rewards.mathematics.notation import clean

PIECES = (
    *(
        "\\frac",
        "\\sqrt",
        "\\boxed{",
        "\\text{",
        "\\left(",
        "\\right)",
        "\\cup",
        "\\pm",
        "\\infty",
        "\\pi",
        "\\%",
        "\\$",
    ),
    *(
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "\\\\",
        "\\,",
        "\\in",
        "\\{",
        "\\}",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "^",
        "_",
    ),
    *("=", "<", ">", ",", ".", "1", "2", "12", "0.5", "x", "y", "cm", "A", "|", "!", "%", "$", "-", "+", "/", " ", "&"),
    *(
        ":",
        "'",
        " to ",
        "\\colon",
        "\\mathrm{m}",
        "\\text{ m}",
        "^\\circ",
        "\\mathbb{Z}",
        "\\mu",
        "\\Omega",
        "cis",
        "mod",
    ),
    *("\u00b0", "\u00bd", "\u00b2", "\u2212", "\u0663", "\uff14"),
)
latex = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
REWARD = MathRuleReward()


# Each took, or might take, time beyond all bounds where a pattern can cut it into pieces in many ways.
LONG = (
    "5 " + "a" * 1900 + "?",
    "5 " + "a/" * 900 + "?",
    "5 " + "a " * 900 + "?",
    "5" + r"\text{a}" * 250 + "?",
    "1:" * 900 + "1",
    "1 to " * 380 + "1",
    "1 ft " * 380,
    "cis" * 600,
    r"1^\circ " * 250,
    "1'" * 900,
    r"{a\choose " * 150 + "}" * 150,
    r"\frac{1}{2}" * 170 + r"\begin{pmatrix}1\end{pmatrix}",
    "1 " * 900 + r"\begin{pmatrix}1",
)


@pytest.mark.parametrize("text", LONG)
def test_the_quick_grader_comes_back_from_long_answers(text: str) -> None:
    for reference, answer in (("2:3", text), (text, "7")):
        score = REWARD.quick_score(RewardSample("1", "", f"\\boxed{{{answer}}}", reference))
        assert score is None or score.score == 0.0


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(answer=st.one_of(latex, st.text(max_size=200)), reference=st.one_of(latex, st.text(max_size=50)))
def test_the_quick_grader_survives_any_text(answer: str, reference: str) -> None:
    score = REWARD.quick_score(RewardSample("1", "", f"\\boxed{{{answer}}}", reference))
    assert score is None or (score.status in (Status.OK, Status.COULD_NOT_GRADE) and score.score in (0.0, 1.0))


@settings(max_examples=300, deadline=None)
@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_equal_exactly_when_they_are(left: Fraction, right: Fraction) -> None:
    shown = [rf"\frac{{{value.numerator}}}{{{value.denominator}}}" for value in (left, right)]
    assert quick_verdict(shown[0], shown[1]) is (left == right)
    assert quick_verdict(shown[0], f"{left.numerator}/{left.denominator}") is True
    assert exact_value(clean(shown[0])) == left


@settings(max_examples=200, deadline=None)
@given(st.integers(), st.integers(min_value=1, max_value=10**9), st.integers(0, 40))
def test_integers_and_decimals_that_differ_in_the_last_place_differ(whole: int, step: int, places: int) -> None:
    shown = [str(value) for value in (whole, whole + step)]
    assert quick_verdict(shown[0], shown[1]) is False
    scaled = [rf"{value}\cdot 10^{{-{places}}}" for value in (whole, whole + step)]
    assert quick_verdict(scaled[0], scaled[1]) is False
    assert quick_verdict(scaled[0], scaled[0] + " ") is True


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
def test_surds_agree_with_integer_arithmetic(left: int, right: int, factor: int) -> None:
    assert verdict(rf"{factor}\sqrt{{{left}}}", rf"\sqrt{{{right}}}") is (factor * factor * left == right)
    assert verdict(rf"{factor}\sqrt{{{left}}}", rf"\sqrt{{{factor * factor * left}}}") is True


@pytest.mark.parametrize(
    "answer", ["\x00", "\ud800", "5\ud800", "\\", "{", "}", "\\frac", "\\text{", "_", "^", "%", "\\pm", "=", "<", ","]
)
def test_odd_answers_are_wrong_and_nothing_worse(answer: str) -> None:
    for reference in ("5", "\\sqrt{2}", "\\{1,2\\}", "x<3", "(1,2)", "x=\\pi", "\\text{yes}"):
        score = REWARD.score(RewardSample("1", "", f"\\boxed{{{answer}}}", reference))
        assert (score.score, score.status) == (0.0, Status.OK), (answer, reference, score.reason)
