"""A run's episodes: those that a step trains on, and those of a validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roll_core.config.schema import AgenticConfig
from roll_core.data import DataProto
from roll_core.pipelines.step_report import write_lines
from roll_core.rollout.env_async_collector import AsyncEnvCollector
from roll_core.rollout.env_batch import episode_metrics, records, to_batch, validation_metrics
from roll_core.rollout.env_collector import EnvCollector
from roll_core.rollout.env_dialogue import Dialogue
from roll_core.rollout.env_episode import Episode


class Episodes:
    """Plays them in this process, and writes them to files turn by turn where `rollout_dump_dir` says so.

    Args:
        held_out: plays the episodes of a validation, always the same ones.
    """

    def __init__(
        self,
        config: AgenticConfig,
        dialogue: Dialogue,
        pad_token_id: int,
        collector: EnvCollector | AsyncEnvCollector,
        held_out: EnvCollector | AsyncEnvCollector | None,
    ) -> None:
        self.config, self.dialogue, self.pad_token_id = config, dialogue, pad_token_id
        self.collector, self.held_out = collector, held_out

    def __call__(self, step: int) -> tuple[DataProto, dict[str, float]]:
        """The rows of a step's episodes, and metrics of them."""
        episodes, metrics = self.play(step)
        return to_batch(episodes, self.dialogue, self.pad_token_id, self.config.row_length), metrics

    def play(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        """A step's episodes, and metrics of them."""
        episodes, metrics = self.collector(step)
        self._write(f"episodes-{step:06d}", episodes)
        return episodes, metrics | episode_metrics(episodes)

    def validate(self, step: int) -> tuple[dict[str, float], int]:
        """Metrics of held-out episodes with the weights that engines have, and how many they were."""
        assert self.held_out is not None, "whoever validates has environments for it"
        # Always from the first group on, so that every validation plays the same episodes.
        self.held_out.order.drawn = 0
        episodes, faults = self.held_out.collect(f"val/{step}")
        self._write(f"val-{step:06d}", episodes)
        metrics = validation_metrics(episodes) | {f"val/{name}": value for name, value in faults.items()}
        return metrics, len(episodes)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Engines are free in the block, for new weights and for validation."""
        with self.collector.paused():
            yield

    def weights_are(self, version: int) -> None:
        """Engines have new weights."""
        self.collector.weights_are(version)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold."""
        return self.collector.state_dict()

    def as_json(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state as JSON data."""
        return self.collector.as_json(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.collector.load_state_dict(state)

    def close(self) -> None:
        """End all environments."""
        self.collector.close()
        if self.held_out is not None:
            self.held_out.close()

    def _write(self, name: str, episodes: Sequence[Episode]) -> None:
        if self.config.rollout_dump_dir:
            write_lines(Path(self.config.rollout_dump_dir) / f"{name}.jsonl", records(episodes, self.dialogue))
