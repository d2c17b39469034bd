r"""Mathematics by rule: the last \boxed{...} of the answer part is compared with the reference as mathematics.

A response without a box scores 0. The thinking part is optional and never graded; neither is the format.
"""

from __future__ import annotations

import re
from typing import ClassVar

from roll_core.rewards.answer import final_answer, last_boxed
from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.mathematics import units
from roll_core.rewards.mathematics.algebra import CannotCompare, UnreadableAnswer, UnreadableReference
from roll_core.rewards.mathematics.compare import MAX_CHARACTERS, quick_verdict, verdict
from roll_core.rewards.mathematics.nodes import Items, Matrix, Node, Scalar, Word
from roll_core.rewards.mathematics.notation import clean
from roll_core.rewards.mathematics.structure import read

_PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_PLACEHOLDERS = frozenset(
    {"", "none", "null", "nan", "n/a", "na", "?", "-", "unknown", "tbd", "todo", "missing", "empty"}
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_FUNCTION_NAMES = frozenset(
    (
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "log",
        "ln",
        "exp",
        "mod",
        "max",
        "min",
        "gcd",
        "lcm",
        "det",
        "and",
        "or",
        "if",
        "for",
    )
)


class MathRuleReward(Reward):
    """1.0 for an answer that equals the reference, 0.0 for one that does not or is missing.

    Status `could_not_grade` where there is no verdict: the reference is missing or is no mathematics, or the two cannot
    be compared. An answer that cannot be read is wrong.
    """

    # Powers of powers fill any memory before they reach a deadline.
    memory_limit_bytes: ClassVar[int | None] = 4 << 30

    def warm_up(self) -> None:
        """Import the algebra system, and let its parser build its tables."""
        verdict(r"\sqrt{8}", r"2\sqrt{2}")

    @classmethod
    def self_test(cls) -> list[str]:
        """Sentences about known pairs that this install grades wrongly."""
        from roll_core.rewards.selftest import math_problems

        return math_problems()

    def row_problem(self, sample: RewardSample) -> str | None:
        """What is wrong with a row's reference answer."""
        return check_ground_truth(sample.ground_truth)

    def quick_score(self, sample: RewardSample) -> Score | None:
        """The score where no algebra is needed: no box, plain numbers, words, or the same text."""
        return self._score(sample, is_quick=True)

    def score(self, sample: RewardSample) -> Score:
        """Score one response; may take as long as its arithmetic does."""
        score = self._score(sample, is_quick=False)
        assert score is not None
        return score

    def _score(self, sample: RewardSample, is_quick: bool) -> Score | None:
        problem = check_ground_truth(sample.ground_truth)
        if problem is not None:
            return Score(0.0, Status.COULD_NOT_GRADE, problem)
        reference = _reference(sample.ground_truth)
        answer = final_answer(sample.response)
        if answer is None:
            return Score(0.0, reason="no boxed answer")
        if not answer.strip():
            return Score(0.0, reason="the box is empty")
        try:
            is_right = quick_verdict(reference, answer)
            if is_right is None and is_quick:
                return None
            if is_right is None:
                is_right = verdict(reference, answer)
        except UnreadableAnswer as error:
            return Score(0.0, reason=str(error))
        except (UnreadableReference, CannotCompare) as error:
            return Score(0.0, Status.COULD_NOT_GRADE, str(error))
        return (
            Score(1.0)
            if is_right
            else Score(0.0, reason=f"answered {answer[:100]!r}, the reference is {reference[:100]!r}")
        )


def check_ground_truth(text: str) -> str | None:
    """What is wrong with a reference answer, as a data check before a run; None if nothing is found.

    Cheap: expressions are not parsed as algebra, so a malformed formula is found only when it is compared.
    """
    if not isinstance(text, str):
        return f"the reference answer is no text but {type(text).__name__}: {str(text)[:100]}"
    if len(text) <= MAX_CHARACTERS and _PLAIN_NUMBER.fullmatch(text):
        return None  # Most data sets hold little else, and reading one as mathematics takes 100 microseconds.
    reference = _reference(text)
    if reference.strip().casefold() in _PLACEHOLDERS:
        return f"the reference answer is empty or a placeholder: {text[:100]!r}"
    if len(reference) > MAX_CHARACTERS:
        return f"the reference answer has {len(reference)} characters; at most {MAX_CHARACTERS} can be compared"
    cleaned = clean(reference)
    if not cleaned:
        return f"the reference answer has no content: {text[:100]!r}"
    plain = cleaned.replace("\\{", "").replace("\\}", "")
    if plain.count("{") != plain.count("}"):
        return f"the reference answer has unbalanced braces: {text[:100]!r}"
    if _is_prose(cleaned, read(cleaned)):
        return f"the reference answer reads like a sentence, not like an answer: {text[:100]!r}"
    return None


def _reference(ground_truth: str) -> str:
    boxed = last_boxed(ground_truth) if "box" in ground_truth else None
    return ground_truth if boxed is None else boxed


def _is_prose(cleaned: str, node: Node) -> bool:
    # Words in \text{...} are meant; "no solution" and its like have been read as sets by now.
    if "\\text" in cleaned or isinstance(node, Items | Matrix):
        return False
    if isinstance(node, Word):
        # Words with a digit in front are times: 4:30 p.m.
        return " " in cleaned and node.text != "undefined" and not node.text[:1].isdigit()
    if isinstance(node, Scalar):
        cleaned = units.split_unit(cleaned)[0]
    cleaned = re.sub(r"\\(?:begin|end) ?\{[^{}]*\}", "", cleaned)
    words = [word for word in _WORD.findall(cleaned) if word.lower() not in _FUNCTION_NAMES]
    return len(words) > 1 and any(len(word) > 2 for word in words)
