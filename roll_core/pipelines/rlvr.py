"""Reinforcement learning with verifiable rewards: the loop, and the story of one step.

Read `RlvrPipeline.step` first. Everything numeric is a pure function in `roll_core.algorithms`; everything that
starts or finds something is in `roll_core.pipelines.start`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, Protocol

from roll_core.cluster.calls import Waiter
from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.pipelines.agentic_shaping import EpisodeShaper
from roll_core.pipelines.delivery import Delivery
from roll_core.pipelines.launch import Crew
from roll_core.pipelines.recovery import Recovery, Rollouts
from roll_core.pipelines.remote_rollout import RemoteRollout, remote_rollout
from roll_core.pipelines.reporting import Reporter
from roll_core.pipelines.sampling import training_temperature
from roll_core.pipelines.scoring import Scoring
from roll_core.pipelines.shaping import Shaper
from roll_core.pipelines.shaping_worker import Shaped, ShapedRemotely, shape
from roll_core.pipelines.turns import DeviceTurns
from roll_core.pipelines.update import PolicyUpdate, ValueUpdate
from roll_core.pipelines.validation import Validation
from roll_core.rollout.sample import to_batch
from roll_core.rollout.weight_update import WeightUpdate


class Source(Rollouts, Protocol):
    """Where a step's rollouts come from; a checkpoint holds where it is."""

    def __call__(self, step: int) -> tuple[Any, dict[str, float]]:
        """Rollouts of a full batch, and how they came about."""

    def paused(self) -> AbstractContextManager[None]:
        """Engines are free in the block, for new weights and for validation."""

    def weights_are(self, version: int) -> None:
        """Engines have new weights."""

    def close(self) -> None:
        """Leave nothing running."""


@dataclass
class Parts:
    """What a pipeline is made of; `roll_core.pipelines.start` puts it together."""

    config: PPOConfig
    crew: Crew
    waiter: Waiter
    collector: Source
    validation: Validation | None
    weights: WeightUpdate
    turns: DeviceTurns
    shaper: Shaper | EpisodeShaper
    recovery: Recovery
    reporter: Reporter
    pad_token_id: int
    delivery: Delivery


class RlvrPipeline:
    """Runs steps until `max_steps`, from wherever the recovered state says."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.config = parts, parts.config
        crew, waiter = parts.crew, parts.waiter
        # Trainers need nobody else: the death of an engine can wait until a step is trained, and the step is kept.
        alone = Waiter(self.config.rpc_timeout)
        for group in crew.trainers:
            alone.watch(group)
        self.scoring = Scoring(crew.actor_train, crew.reference, crew.critic, waiter, parts.delivery)
        self.policy_update = PolicyUpdate(self.config, crew.actor_train, alone, parts.delivery)
        self.value_update = None
        if crew.critic is not None and self.config.critic is not None:
            self.value_update = ValueUpdate(self.config, crew.critic, self.config.critic, alone, parts.delivery)
        sampling = self.config.actor_infer.generating_args
        self.temperature = training_temperature(sampling) if sampling is not None else 1.0
        self.timers = parts.reporter.timers

    def run(self) -> None:
        """All steps that are left. What was finished is kept when a worker dies or the user stops the run."""
        recovery = self.parts.recovery
        with recovery.rescue(), closing(self.parts.collector):
            if recovery.step == 0 and self.config.eval_steps > 0:
                self.parts.reporter.record(0, self.validate(0))
            for step in range(recovery.step + 1, self.config.max_steps + 1):
                self.step(step)

    def step(self, step: int) -> None:
        """One step: new weights to the engines, generate with rewards overlapped, score, train, validate, save."""
        parts = self.parts
        with parts.delivery.step(step), self.timers("time/step_total"):
            self.update_engines(step - 1)
            with self.timers("time/step_generate"):
                batch, metrics = self.rollout(step)
            with self.timers("time/old_log_probs"):
                parts.turns.begin_training()
                batch = batch.with_meta_info(temperature=self.temperature)
                batch = self.scoring(batch, self.temperature, by_actor=self.config.recomputes_old_log_probs)
            with self.timers("time/adv"):
                shaped = self.shape(batch, step)
                metrics |= shaped.metrics
            parts.recovery.begin_training()
            with self.timers("time/step_train"):
                metrics |= self.train(shaped, step)
            parts.shaper.after_step(metrics, len(batch))
            parts.recovery.trained(step)
            try:
                metrics |= self.validate(step) if self.is_validation_due(step) else {}
            except BaseException:
                parts.reporter.step(step, metrics, shaped.told)  # A step that is kept keeps its metrics.
                raise
        metrics |= parts.delivery.metrics()
        # Recorded before it is saved: what a kill in between leaves too much, a resume cuts off again.
        parts.reporter.step(step, metrics, shaped.told)
        with self.timers("time/do_checkpoint/total"):
            parts.recovery.finish()
        parts.reporter.saved(parts.recovery.last_path)

    def rollout(self, step: int) -> tuple[DataProto | RemoteRollout, dict[str, float]]:
        """The rows that a step trains on, or a reference to them, and metrics of how they came about."""
        parts = self.parts
        samples, metrics = parts.collector(step)
        if parts.crew.shaping is None:
            return to_batch(samples, parts.pad_token_id, self.config.response_window), metrics
        return remote_rollout(self.config, samples, parts.delivery, parts.pad_token_id, step), metrics

    def update_engines(self, version: int) -> None:
        """Engines get the weights after `version` steps, every `model_update_frequency` steps.

        Also whenever these weights are validated or saved, so that a validation is of the weights it is reported
        for, and a resumed run samples from the same weights as one that was never stopped.
        """
        with self.timers("time/step_model_update"):
            is_due = version % self.config.model_update_frequency == 0 or self.parts.weights.version < 0
            is_due = is_due or self.is_validation_due(version) or self.config.is_save_due(version)
            if is_due and self.parts.weights.version != version:
                self.parts.turns.begin_update()
                with self.parts.collector.paused():
                    self.parts.weights.send(version)
                    self.parts.collector.weights_are(version)
            self.parts.turns.begin_generation()

    def shape(self, batch: DataProto | RemoteRollout, step: int) -> Shaped:
        """What training is given, and metrics; made here, or where the rows are read by reference."""
        parts = self.parts
        if isinstance(batch, DataProto):
            return shape(parts.shaper, batch)
        assert parts.crew.shaping is not None, "references are shaped by a worker"
        arguments = (batch, parts.shaper.state_dict(), step, parts.delivery.store())
        result: ShapedRemotely
        [result] = parts.waiter.wait([parts.crew.shaping.submit_to(0, "shape", *arguments)])
        parts.shaper.load_state_dict(result.state)
        return result.shaped

    def train(self, shaped: Shaped, step: int) -> dict[str, float]:
        """Optimiser steps of the critic, and of the actor once the critic has warmed up."""
        if shaped.is_empty:
            return {}
        metrics = self.value_update(shaped.critic, step) if self.value_update is not None else {}
        if step > self.config.critic_warmup:
            metrics |= self.policy_update(shaped.actor, step)
        return metrics

    def is_validation_due(self, step: int) -> bool:
        """Every `eval_steps`, and after the last step."""
        return self.config.eval_steps > 0 and (step % self.config.eval_steps == 0 or step == self.config.max_steps)

    def validate(self, step: int) -> dict[str, float]:
        """Accuracy on the held-out problems with the weights after `step` steps."""
        if self.parts.validation is None:
            return {}
        with self.parts.collector.paused():
            self.update_engines(step)
            with self.timers("time/val_step"):
                metrics, samples = self.parts.validation(step)
        self.parts.reporter.validated(step, metrics, samples)
        return metrics
