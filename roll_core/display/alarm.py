"""An alarm for runs that go on without learning anything."""

from __future__ import annotations


class ConstantRewardAlarm:
    """Notices that nothing can be learnt: one reward value, or no advantage, for `patience` steps in a row.

    A run like that ends with loss 0 and exit code 0, and nobody is told.
    """

    def __init__(self, patience: int = 5) -> None:
        self._patience = patience
        self._single_reward: float | None = None
        self._single_steps = 0
        self._zero_steps = 0

    def observe(self, reward_min: float, reward_max: float, largest_advantage: float) -> str | None:
        """Look at one step; a notice for the user when a streak reaches the patience, once per streak.

        Args:
            reward_min, reward_max: over all samples of the step.
            largest_advantage: the largest absolute value over all tokens that are trained on.
        """
        is_single = reward_min == reward_max
        if is_single and reward_min == self._single_reward:
            self._single_steps += 1
        else:
            self._single_steps = int(is_single)
        self._single_reward = reward_min if is_single else None
        self._zero_steps = self._zero_steps + 1 if largest_advantage == 0 else 0
        if self._single_steps == self._patience:
            return (
                f"every reward was {reward_min:g} in each of the last {self._patience} steps, so there is nothing to "
                "learn from: look at the samples, try the reward with `roll score`, or use harder or easier prompts"
            )
        if self._zero_steps == self._patience and self._single_steps < self._patience:
            return (
                f"every advantage was 0 in each of the last {self._patience} steps, so the weights do not change: "
                "all answers to a prompt get the same reward; use more samples per prompt, or harder or easier prompts"
            )
        return None
