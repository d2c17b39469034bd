"""Episodes in the environments of `train_env_manager`, from starts that no training plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from roll_core.cluster.calls import Waiter
from roll_core.config.rollout_steps import RolloutSteps, episode_steps
from roll_core.config.schema import AgenticConfig
from roll_core.display import Sample
from roll_core.pipelines.agentic_start import Words, make_collector, read_words
from roll_core.pipelines.environments import environments_of
from roll_core.pipelines.launch import Engines, Setting, site_of
from roll_core.pipelines.rollout import Record
from roll_core.pipelines.rollout_summary import Verdict
from roll_core.rollout.env_batch import episode_metrics, records
from roll_core.rollout.env_collector import EnvCollector


class EpisodePlan:
    """Groups of episodes in their order; members of a group start alike."""

    prefix = "episodes"

    def __init__(self, config: AgenticConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.words = read_words(config)
        self.steps: RolloutSteps = episode_steps(config)
        sampling = config.actor_infer.generating_args
        self.identity: Mapping[str, Any] = {
            "seed": config.seed,
            "model": config.actor_infer.model_args.model_name_or_path,
            "rollout_batch_size": config.rollout_batch_size,
            "sequence_length": config.row_length,
            "actor_infer.generating_args": sampling.model_dump(mode="json") if sampling is not None else None,
            "train_env_manager": config.train_env_manager.model_dump(mode="json"),
            "custom_envs": {tag: config.custom_envs[tag].model_dump(mode="json") for tag in config.used_tags},
        }

    def source(self, engines: Engines, waiter: Waiter, notify: Callable[[str], None]) -> EpisodeSource:
        """Plays with these engines."""
        waiter.unwatch_peers(engines.actor_infer)
        make_environments = partial(environments_of, self.config, site_of(self.setting), self.setting.platform)
        collector = make_collector(
            self.config, engines.actor_infer, waiter, self.words, "rollout", notify, make_environments
        )
        return EpisodeSource(collector, self.words, self.steps)

    def verdict(self, record: Record) -> Verdict:
        """Right is an episode that its environment calls a success."""
        return Verdict(bool(record["success"]), record["traj_group_id"], record["tag"], float(record["score"]))

    def shown(self, record: Record) -> Sample:
        """What was seen first, every answer, and the score."""
        answers = " | ".join(str(turn["answer"]) for turn in record["turns"])
        first = str(record["turns"][0]["observation"]) if record["turns"] else ""
        return Sample(first, answers, float(record["score"]), str(record["tag"]), reason=str(record["end"]))


class EpisodeSource:
    """Plays the episodes of a step; where the order of groups stands is carried from step to step."""

    def __init__(self, collector: EnvCollector, words: Words, steps: RolloutSteps) -> None:
        self.collector, self.words, self.steps = collector, words, steps

    def collect(self, step: int) -> tuple[list[Record], dict[str, float]]:
        """A step's episodes; those that a fault of an environment ended are played again, and counted."""
        self.collector.num_groups = len(self.steps.groups(step))
        episodes, metrics = self.collector.collect(f"rollout/{step}")
        metrics |= episode_metrics(episodes)
        metrics["val_correct/all/mean"] = metrics["traj/success"]
        metrics["reward/mean"] = metrics["rollout/score/mean"]
        metrics["rollout/tokens"] = float(sum(sum(row.mask) for one in episodes for row in one.rows))
        return list(records(episodes, self.words.dialogue)), metrics

    def state_dict(self) -> dict[str, Any]:
        """Where in the order of groups the run is."""
        return self.collector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.collector.load_state_dict(state)

    def close(self) -> None:
        """End the environments' processes."""
        self.collector.close()
