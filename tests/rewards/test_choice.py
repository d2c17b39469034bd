from __future__ import annotations

import pytest

from roll_core.rewards import RewardSample, Score, Status
from roll_core.rewards.choice import Choice, chosen, letter_of
from roll_core.rewards.crossthinkqa import CrossThinkQAReward, MultipleChoiceReward


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"),
        ("c", "C"),
        ("(C)", "C"),
        ("C.", "C"),
        ("C: the third", "C"),
        ("(C) the third", "C"),
        ("C - the third", "C"),
        ("C the third", "C"),
        ("option c", "C"),
        (r"\text{E}", "E"),
        (r"\mathbf{(E)}", "E"),
        ("{{{E}}}", "E"),
        ("**E**", "E"),
        ("C, not D", "C"),
        ("C, because B is wrong", "C"),
        ("A because it is", "A"),
        ("C!", "C"),
        ("'C'", "C"),
        ("``C''", "C"),
        ("\u201cC\u201d", "C"),
        ("<C>", "C"),
        ("_C_", "C"),
        (r"\(C\)", "C"),
        (r"(C)\ 42", "C"),
        (r"C\ 42", "C"),
        ("\uff08\uff23\uff09", "C"),
        ("\u200bC\u3002", "C"),
        ("Answer - C", "C"),
        ("I'd say C", None),
        ("not B", None),
        ("E.g. this", None),
        ("i.e. that", None),
        ("(c) or (d)", None),
        ("c) and d)", None),
        ("'A' or 'B'", None),
        ("C,D", None),
        ("A/B", None),
        ("neither A nor B", None),
        ("a and b", None),
        ("\u3000", None),
        ("A dog", None),
        ("a dog", None),
        ("A, C", None),
        ("A and C", None),
        ("AC", None),
        ("Because", None),
        ("", None),
        ("C" * 1000, None),
    ],
)
def test_a_letter_is_read_as_people_read_it(text: str, letter: str | None) -> None:
    assert letter_of(text) == letter


@pytest.mark.parametrize(
    ("response", "choice"),
    [
        (r"So \boxed{\text{E}}.", Choice("E", True)),
        (r"\boxed{E: the \frac{1}{2} one}", Choice("E", True)),
        (r"First \boxed{A}, no: \boxed{{{b}}}", Choice("B", True)),
        (r"The answer is A, or \boxed{17}", Choice(None, True)),
        ("The answer is C.", Choice("C", False)),
        ("the answer is A. No, the answer is: (d) because", Choice("D", False)),
        ("Thinking.\nB", Choice("B", False)),
        ("The answer is not B. The answer is C.", Choice("C", False)),
        ("The answer is C, not B.", Choice("C", False)),
        ("The answer is not B.", Choice(None, False)),
        ("The answer is A or B", Choice(None, False)),
        ("**Answer:** (C)", Choice("C", False)),
        ("The answer is:\n\nC", Choice("C", False)),
        (r"\boxed{C}. The answer is D", Choice("C", True)),
        (r"\boxed{not B}", Choice(None, True)),
        (r"\boxed{ }", Choice(None, True)),
        ("<think>The answer is B</think>", Choice(None, False)),
        ("The cat.", Choice(None, False)),
        (r"<think>\boxed{A}</think>The answer is B", Choice("B", False)),
        ("", Choice(None, False)),
    ],
)
def test_what_a_response_chooses(response: str, choice: Choice) -> None:
    assert chosen(response) == choice


@pytest.mark.parametrize(
    ("reward_type", "rewards"),
    [("loose", (1.0, 1.0, -1.0, -1.0)), ("soft", (1.0, 0.5, -0.5, -1.0)), ("strict", (1.0, -1.0, -1.0, -1.0))],
)
def test_the_reward_depends_on_the_box_as_its_type_says(reward_type: str, rewards: tuple[float, ...]) -> None:
    reward = CrossThinkQAReward(reward_type)
    responses = (r"\boxed{C}", "The answer is C", r"\boxed{D}", "The answer is D")
    found = [reward.score(RewardSample("1", "", response, "C")) for response in responses]
    assert [score.reward for score in found] == list(rewards)
    assert [score.score for score in found] == [float(one > 0) for one in rewards]


def test_multiple_choice_needs_a_box_and_rewards_in_training_what_it_scores() -> None:
    reward = MultipleChoiceReward()
    assert reward.score(RewardSample("1", "", r"\boxed{c}", "C")) == Score(1.0)
    assert reward.score(RewardSample("1", "", "The answer is C", "C")) == Score(0.0, reason="no boxed answer")
    assert reward.score(RewardSample("1", "", r"\boxed{D}", "C")) == Score(0.0, reason="chose D, the reference is C")


@pytest.mark.parametrize("reward", [CrossThinkQAReward(), MultipleChoiceReward()])
@pytest.mark.parametrize("truth", ["", "Paris", "A, B", "42"])
def test_a_reference_that_is_no_option_is_no_verdict(reward: MultipleChoiceReward, truth: str) -> None:
    sample = RewardSample("1", "", r"\boxed{A}", truth)
    assert reward.score(sample).status is Status.COULD_NOT_GRADE
    assert reward.row_problem(sample) == f"the reference must be the letter of an option, found {truth!r}"


@pytest.mark.parametrize("truth", ["C", "c", "(C)", "C. the third", r"\boxed{C}"])
def test_references_are_read_like_answers(truth: str) -> None:
    assert MultipleChoiceReward().score(RewardSample("1", "", r"\boxed{C}", truth)).score == 1.0
