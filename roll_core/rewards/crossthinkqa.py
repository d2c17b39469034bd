"""Questions with options: the letter that a response chooses is compared with the reference."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from roll_core.rewards.base import Reward, RewardSample, Score, Status
from roll_core.rewards.choice import Choice, chosen, reference_letter, reference_problem

# By (is right, is boxed).
REWARD_TABLES: Mapping[str, Mapping[tuple[bool, bool], float]] = {
    "loose": {(True, True): 1.0, (True, False): 1.0, (False, True): -1.0, (False, False): -1.0},
    "soft": {(True, True): 1.0, (True, False): 0.5, (False, True): -0.5, (False, False): -1.0},
    "strict": {(True, True): 1.0, (True, False): -1.0, (False, True): -1.0, (False, False): -1.0},
}
"""The training reward by `reward_type`: what a right answer is worth outside a box, and a wrong one inside it."""


class ChoiceReward(Reward):
    """A reward of the option that a response chooses. Subclasses say what a choice is worth."""

    def row_problem(self, sample: RewardSample) -> str | None:
        """What is wrong with a row's reference."""
        return reference_problem(sample.ground_truth)

    def score(self, sample: RewardSample) -> Score:
        """Score one response."""
        problem = self.row_problem(sample)
        if problem is not None:
            return Score(0.0, Status.COULD_NOT_GRADE, problem)
        return self.judge(chosen(sample.response), reference_letter(sample.ground_truth))

    @abstractmethod
    def judge(self, choice: Choice, wanted: str | None) -> Score:
        """What a choice is worth where the letter `wanted` is right."""


class CrossThinkQAReward(ChoiceReward):
    """Score 1.0 where the training reward is positive, else 0.0; the reward is in [-1, 1], by `REWARD_TABLES`.

    Status `could_not_grade` where the reference names no option. A response that names none is wrong.

    Args:
        reward_type: "loose", "soft" or "strict".
    """

    def __init__(self, reward_type: str = "loose") -> None:
        if reward_type not in REWARD_TABLES:
            raise TypeError(f"reward_type must be one of {', '.join(REWARD_TABLES)}, not {reward_type!r}")
        self.table = REWARD_TABLES[reward_type]

    def judge(self, choice: Choice, wanted: str | None) -> Score:
        """What a choice is worth, by whether it is right and whether it stands in a box."""
        reward = self.table[choice.letter == wanted, choice.is_boxed]
        if choice.letter == wanted:
            reason = "" if choice.is_boxed else "the answer is not in a box"
        else:
            reason = f"chose {choice.letter or 'no option'}, the reference is {wanted}"
        return Score(float(reward > 0), reason=reason, reward=reward)


class MultipleChoiceReward(ChoiceReward):
    r"""1.0 where the last \boxed{...} holds the letter of the reference, else 0.0.

    Status `could_not_grade` where the reference names no option.
    """

    def judge(self, choice: Choice, wanted: str | None) -> Score:
        """What a choice is worth: one outside a box is none."""
        if not choice.is_boxed:
            return Score(0.0, reason="no boxed answer")
        if choice.letter == wanted:
            return Score(1.0)
        return Score(0.0, reason=f"chose {choice.letter or 'no option'}, the reference is {wanted}")
