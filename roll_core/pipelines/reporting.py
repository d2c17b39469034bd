"""What a run tells: metrics to the trackers, progress and samples to the terminal, rollouts to files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from roll_core.config.schema import RLVRConfig
from roll_core.data import DataProto
from roll_core.display import ConstantRewardAlarm, RunDisplay
from roll_core.display import Sample as ShownSample
from roll_core.rollout.sample import Sample
from roll_core.trackers import RunTrackers, Timers

SHOWN_SAMPLES = 10


class Reporter:
    """Collects a step's metrics and times, and hands them to trackers and display."""

    def __init__(self, config: RLVRConfig, trackers: RunTrackers, display: RunDisplay) -> None:
        self.config, self.trackers, self.display = config, trackers, display
        self.timers = Timers()
        self.alarm = ConstantRewardAlarm()
        self.first_accuracy: float | None = None
        self.last_accuracy: float | None = None

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of a moment that is no training step."""
        self.trackers.log(step, {**metrics, **self.timers.take(), "system/global_step": step})

    def step(self, step: int, metrics: Mapping[str, float], batch: DataProto) -> None:
        """A training step has ended."""
        times = self.timers.take()
        complete = {**metrics, **times, **self._rates(step, times, batch)}
        self.trackers.log(step, complete)
        self.display.step(step, complete)
        if self.config.logging_steps and step % self.config.logging_steps == 0:
            self.display.samples([_shown(batch, row) for row in range(min(SHOWN_SAMPLES, len(batch)))])
        scores = batch["scores"]
        warning = self.alarm.observe(float(scores.min()), float(scores.max()), float(batch["advantages"].abs().max()))
        if warning:
            self.display.notice(warning)
        if self.config.rollout_dump_dir:
            _dump(Path(self.config.rollout_dump_dir) / f"step-{step:06d}.jsonl", batch)

    def saved(self, path: Path | None) -> None:
        """Where the newest checkpoint is."""
        if path is not None:
            self.display.checkpoint(path)

    def validated(self, step: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """The held-out problems have been answered."""
        accuracy = metrics["val_correct/all/mean"]
        if self.first_accuracy is None:
            self.first_accuracy = accuracy
        self.last_accuracy = accuracy
        self.display.notice(f"step {step}: {accuracy:.1%} of {len(samples)} held-out answers are right")

    def _rates(self, step: int, times: Mapping[str, float], batch: DataProto) -> dict[str, float]:
        tokens = float((batch["prompt_lengths"] + batch["response_lengths"]).sum())
        generated = float(batch["response_lengths"].sum())
        total, generating = times.get("time/step_total", 0.0), times.get("time/step_generate", 0.0)
        return {
            "system/global_step": step,
            "system/batch_size": len(batch),
            "system/samples": step * len(batch),
            "system/tps": tokens / total if total else 0.0,
            "system/actor_infer/response/tps": generated / generating if generating else 0.0,
        }


def _shown(batch: DataProto, row: int) -> ShownSample:
    return ShownSample(
        prompt=batch["prompt_text"][row],
        response=batch["response_text"][row],
        score=float(batch["scores"][row]),
        tag=batch["tag"][row],
        reason=batch["reason"][row],
    )


def _dump(path: Path, batch: DataProto) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = ("id", "tag", "domain", "prompt_text", "response_text", "status", "reason")
    with path.open("w", encoding="utf-8") as file:
        for index in range(len(batch)):
            record = {name: batch[name][index] for name in kept}
            record |= {"score": float(batch["scores"][index]), "group": int(batch["group"][index])}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
