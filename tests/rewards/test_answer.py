from __future__ import annotations

import pytest

from roll_core.rewards.answer import answer_part, final_answer, last_boxed

BOXES = [
    (r"so \boxed{7}", "7"),
    (r"\boxed{5} no, \boxed{7}", "7"),
    (r"\boxed{1} marker \boxed{2} marker \boxed{42}", "42"),
    (r"\fbox{42}", "42"),
    (r"\boxed {42}", "42"),
    (r"\boxed{5} then \boxed{7 is cut off", "5"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\\boxed\{7\}", "7"),
    (r"\\boxed{\\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed\{\frac{1}{2}\}", r"\frac{1}{2}"),
    (r"\\boxed\{\frac\{1\}\{2\}\}", r"\frac{1}{2}"),
    (r"a line break \\\boxed{3}", "3"),
    (r"{ { \boxed{3}", "3"),
    (r"} } \boxed{3}", "3"),
    (r"\boxed{}", ""),
    (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("the answer is 7", None),
    (r"\boxed 7", "7"),
    (r"$\boxed7$", "7"),
    (r"First \boxed{5}, and later \boxed 7", "5"),
    (r"The sum, \boxed -3.", "-3"),
    (r"Put it in \boxed please", None),
    (r"\boxed " + "1" * 60, None),
    (r"\boxed{7", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "content"), BOXES)
def test_the_last_balanced_box_is_the_answer(text: str, content: str | None) -> None:
    assert final_answer(text) == content


THINKING = [
    "The answer is \\boxed{3}.",
    "One paragraph, 3x = 9, so \\boxed{3}",
    "The answer is \\boxed{3}.\n\nLet me know if you would like to see another method.",
    "<think>3x = 9</think>\nThe answer is \\boxed{3}.",
    "<think>3x = 9, perhaps \\boxed{4}</think>\nThe answer is \\boxed{3}.",
    "3x = 9, perhaps \\boxed{4}</think>\nThe answer is \\boxed{3}.",
    "<think><think>3x = 9, or \\boxed{4}</think>\nThe answer is \\boxed{3}.",
    "<think>a</think></think>\nThe answer is \\boxed{3}.",
    "<think>a</think>\nThe answer is \\boxed{3}.</think>",
    " <think>a \\boxed{4}</think> \\boxed{3}",
    "<think>a</think> \\boxed{5} <think>no, \\boxed{4}</think> \\boxed{3}",
    "<think>a</think> \\boxed{3} <think>or is it \\boxed{4}",
    "<think>cut off, but \\boxed{3}",
    "<THINK>a \\boxed{4}</ think>\\boxed{3}",
]


@pytest.mark.parametrize("response", THINKING)
def test_the_thinking_part_is_optional_and_never_graded(response: str) -> None:
    assert final_answer(response) == "3"


def test_a_box_in_the_thinking_part_alone_is_no_answer() -> None:
    assert final_answer("<think>\\boxed{3}</think> I am done.") is None


def test_the_answer_part_has_no_thinking_in_it() -> None:
    assert answer_part("<think>a</think>b<think>c</think>d") == "bd"
    assert answer_part("a</think>b") == "b"
    assert "think" not in answer_part("<think>a")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150_000,
        "{" * 1_000_000,
        "<think>" * 150_000,
        ("\\boxed" + " " * 50) * 20_000,
        "<" + " " * 10**6,
        "\\" * 10**6,
    ],
)
def test_no_text_makes_the_search_slow(text: str) -> None:
    assert final_answer(text + "\\boxed{42}") == ("42" if not text.endswith("\\") else last_boxed(text + "\\boxed{42}"))
