"""Guessing a number in several turns: each wrong guess is answered with whether it was too low or too high."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from roll_core.envs.base import ActionParser, Environment, StepResult

INSTRUCTION = (
    "Guess a whole number from {lowest} to {highest}, in {max_steps} guesses at most. After each you are told whether "
    "the number is higher or lower.\n"
    "Answer with one guess, such as <answer>{lowest}</answer>.\n"
)


class GuessNumber(Environment):
    """Reward 1 for the number, which ends the episode; 0 for any other guess. What is no number is a guess too.

    Args:
        lowest: the least number there may be.
        highest: the greatest.
        max_steps: guesses after which the episode is truncated.
        format_penalty: reward of an answer without a number from `lowest` to `highest`.
        observation: "hint", the answer to the last guess; or "range", what is left, for models too small to remember.
        action_pattern: see `ActionParser`.
        env_instruction: text before the first observation; by default the rules.
    """

    def __init__(
        self,
        *,
        lowest: int = 1,
        highest: int = 20,
        max_steps: int = 10,
        format_penalty: float = 0.0,
        observation: str = "hint",
        action_pattern: str = r"<answer>(.*?)</answer>",
        special_token_list: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
        env_instruction: str | None = None,
    ) -> None:
        if lowest >= highest:
            raise ValueError(f"highest is above lowest, but {highest} is not above {lowest}")
        if observation not in ("hint", "range"):
            raise ValueError(f"observation is hint or range, not '{observation}'")
        self.lowest, self.highest, self.max_steps = lowest, highest, max_steps
        self.format_penalty, self.observation = format_penalty, observation
        self.parser = ActionParser(action_pattern, {}, tuple(special_token_list))
        rules = INSTRUCTION.format(lowest=lowest, highest=highest, max_steps=max_steps)
        self.instruction = env_instruction if env_instruction is not None else rules
        self.random = random.Random(0)
        self.number, self.num_steps, self.left = lowest, 0, (lowest, highest)

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Another number; the same for the same seed, in any process."""
        self.random = random.Random(seed)
        self.number = self.random.randint(self.lowest, self.highest)
        self.num_steps, self.left = 0, (self.lowest, self.highest)
        return self._seen("Your first guess?"), {"env_instruction": self.instruction}

    def step(self, action: str) -> StepResult:
        """Guess."""
        guess = _whole_number(self.parser(action).action)
        self.num_steps += 1
        is_valid = guess is not None and self.lowest <= guess <= self.highest
        is_effective = guess is not None and self.left[0] <= guess <= self.left[1]
        is_right = guess == self.number
        penalty = 0.0 if is_valid else self.format_penalty
        hint = self._hint(guess)
        info = {
            "metrics": {
                "action_is_effective": float(is_effective),
                "action_is_valid": float(is_valid),
                "success": float(is_right),
                "format_penalty": penalty,
            },
            "metrics_agg_mode": {"success": "last"},
            "action_desc": f"guessed {guess}" if guess is not None else "no guess",
        }
        is_late = not is_right and self.num_steps >= self.max_steps
        return self._seen(hint, is_over=is_right), float(is_right) + penalty, is_right, is_late, info

    def sample_random_action(self) -> str:
        """Any number of those there may be."""
        return f"<answer>{self.random.randint(self.lowest, self.highest)}</answer>"

    def _hint(self, guess: int | None) -> str:
        """What is said to a guess; the numbers that are left become fewer."""
        if guess is None:
            return "That is no whole number."
        if not self.lowest <= guess <= self.highest:
            return f"That is not from {self.lowest} to {self.highest}."
        if guess == self.number:
            return f"{guess} is right."
        if guess < self.number:
            self.left = max(self.left[0], guess + 1), self.left[1]
            return f"The number is higher than {guess}."
        self.left = self.left[0], min(self.left[1], guess - 1)
        return f"The number is lower than {guess}."

    def _seen(self, hint: str, is_over: bool = False) -> str:
        return hint if self.observation == "hint" or is_over else f"from {self.left[0]} to {self.left[1]}"


def _whole_number(content: object) -> int | None:
    text = str(content).strip() if content is not None else ""
    digits = text.removeprefix("-").removeprefix("+")
    # Not int(text) alone: it takes underscores, digits of other scripts, and refuses very long ones.
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
