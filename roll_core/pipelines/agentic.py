"""Reinforcement learning in environments: the loop of RLVR, with episodes in the place of answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roll_core.config.schema import AgenticConfig
from roll_core.data import DataProto
from roll_core.pipelines.reporting import Reporter
from roll_core.pipelines.rlvr import Parts, RlvrPipeline
from roll_core.pipelines.step_report import write_lines
from roll_core.rollout.env_async_collector import AsyncEnvCollector
from roll_core.rollout.env_batch import episode_metrics, records, to_batch, validation_metrics
from roll_core.rollout.env_collector import EnvCollector
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode


class EpisodeReporter(Reporter):
    """Says of episodes what a reporter says of answers, and writes them to files turn by turn."""

    def episodes(self, name: str, episodes: Sequence[Episode], dialogue: Dialogue) -> None:
        """Write episodes to a file of that name in `rollout_dump_dir`, where there is one."""
        if self.config.rollout_dump_dir:
            write_lines(Path(self.config.rollout_dump_dir) / f"{name}.jsonl", records(episodes, dialogue))


class AgenticPipeline(RlvrPipeline):
    """`RlvrPipeline.step` is its story too; this says where rows come from, and what a validation is.

    Args:
        held_out: plays the episodes of a validation, always the same ones.
    """

    def __init__(
        self,
        parts: Parts,
        config: AgenticConfig,
        dialogue: Dialogue,
        reporter: EpisodeReporter,
        held_out: EnvCollector | AsyncEnvCollector | None,
    ) -> None:
        super().__init__(parts)
        self.agentic, self.dialogue, self.reporter, self.held_out = config, dialogue, reporter, held_out

    def run(self) -> None:
        """All steps that are left; the environments of validations end with the run."""
        try:
            super().run()
        finally:
            if self.held_out is not None:
                self.held_out.close()

    def rollout(self, step: int) -> tuple[DataProto, dict[str, float]]:
        """The rows of a step's episodes, and metrics of them."""
        episodes, metrics = self.parts.collector(step)
        self.reporter.episodes(f"episodes-{step:06d}", episodes, self.dialogue)
        batch = to_batch(episodes, self.dialogue, self.parts.pad_token_id, self.agentic.row_length)
        return batch, metrics | episode_metrics(episodes)

    def validate(self, step: int) -> dict[str, float]:
        """Success in held-out episodes with the weights after `step` steps."""
        if self.held_out is None:
            return {}
        with self.parts.collector.paused():
            self.update_engines(step)
            with self.timers("time/step_val"):
                # Always from the first group on, so that every validation plays the same episodes.
                self.held_out.order.drawn = 0
                episodes, faults = self.held_out.collect(f"val/{step}")
        metrics = validation_metrics(episodes) | {f"val/{name}": value for name, value in faults.items()}
        self.reporter.measured(step, metrics["val/success"], f"{len(episodes)} held-out episodes succeed")
        self.reporter.episodes(f"val-{step:06d}", episodes, self.dialogue)
        return metrics
