"""Reinforcement learning in environments: the loop of RLVR, with episodes in the place of answers."""

from __future__ import annotations

from roll_core.data import DataProto
from roll_core.pipelines.episodes import Episodes
from roll_core.pipelines.remote_episodes import RemoteEpisodes
from roll_core.pipelines.remote_rollout import RemoteRollout
from roll_core.pipelines.rlvr import Parts, RlvrPipeline


class AgenticPipeline(RlvrPipeline):
    """`RlvrPipeline.step` is its story too; this says where rows come from, and what a validation is.

    Args:
        episodes: the collector of `parts`; plays validations too, where there are environments for them.
    """

    def __init__(self, parts: Parts, episodes: Episodes | RemoteEpisodes, *, validates: bool) -> None:
        super().__init__(parts)
        self.episodes, self.validates = episodes, validates

    def rollout(self, step: int) -> tuple[DataProto | RemoteRollout, dict[str, float]]:
        """The rows of a step's episodes, or a reference to them, and metrics of them."""
        return self.episodes(step)

    def validate(self, step: int) -> dict[str, float]:
        """Success in held-out episodes with the weights after `step` steps."""
        if not self.validates:
            return {}
        with self.episodes.paused():
            self.update_engines(step)
            with self.timers("time/step_val"):
                metrics, count = self.episodes.validate(step)
        self.parts.reporter.measured(step, metrics["val/success"], f"{count} held-out episodes succeed")
        return metrics
