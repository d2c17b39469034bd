"""What a run tells: metrics to the trackers, progress and samples to the terminal, rollouts to files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.display import ConstantRewardAlarm, RunDisplay
from roll_core.pipelines.step_report import StepSummary, records, shown, shown_rows, summary_of, write_lines
from roll_core.rollout.sample import Sample
from roll_core.trackers import RunTrackers, Timers


class Reporter:
    """Collects a step's metrics and times, and hands them to trackers and display.

    Args:
        text_of: the text of a token id, for the tokens in dumps.
    """

    def __init__(
        self, config: PPOConfig, trackers: RunTrackers, display: RunDisplay, text_of: Callable[[int], str]
    ) -> None:
        self.config, self.trackers, self.display = config, trackers, display
        self.text_of = functools.cache(text_of)
        self.timers = Timers()
        self.alarm = ConstantRewardAlarm()
        self.first_accuracy: float | None = None
        self.last_accuracy: float | None = None

    def recall(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take over the accuracies of the run that is gone on with."""
        found = [float(record["val_correct/all/mean"]) for record in records if "val_correct/all/mean" in record]
        if found:
            self.first_accuracy, self.last_accuracy = found[0], found[-1]

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of a moment that is no training step."""
        self.trackers.log(step, {**metrics, **self.timers.take(), "system/global_step": step})

    def step(self, step: int, metrics: Mapping[str, float], told: DataProto | StepSummary) -> None:
        """A training step has ended. Of a batch that is here all is told; a worker that made a summary wrote files."""
        summary = told
        if isinstance(told, DataProto):
            rows = shown_rows(self.config, len(told), step)
            summary = summary_of(told, [shown(told, row) for row in rows])
            if self.config.rollout_dump_dir:
                path = Path(self.config.rollout_dump_dir) / f"step-{step:06d}.jsonl"
                write_lines(path, records(told, self.text_of))
        assert isinstance(summary, StepSummary)
        times = self.timers.take()
        complete = {**metrics, **times, **_rates(step, times, summary)}
        self.trackers.log(step, complete)
        self.display.step(step, complete)
        if summary.samples:
            self.display.samples(summary.samples)
        warning = self.alarm.observe(summary.lowest_score, summary.highest_score, summary.largest_advantage)
        if warning:
            self.display.notice(warning)

    def saved(self, path: Path | None) -> None:
        """Where the newest checkpoint is."""
        if path is not None:
            self.display.checkpoint(path)

    def measured(self, step: int, accuracy: float, of_what: str) -> None:
        """Keep the share that a validation came to, and say of what it is one."""
        if self.first_accuracy is None:
            self.first_accuracy = accuracy
        self.last_accuracy = accuracy
        self.display.notice(f"step {step}: {accuracy:.1%} of {of_what}")

    def validated(self, step: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """The held-out problems have been answered."""
        self.measured(step, metrics["val_correct/all/mean"], f"{len(samples)} held-out answers are right")
        if self.config.rollout_dump_dir:
            write_lines(Path(self.config.rollout_dump_dir) / f"val-{step:06d}.jsonl", map(record_of_sample, samples))


def _rates(step: int, times: Mapping[str, float], summary: StepSummary) -> dict[str, float]:
    total, generating = times.get("time/step_total", 0.0), times.get("time/step_generate", 0.0)
    return {
        "system/global_step": step,
        "system/batch_size": summary.num_rows,
        "system/samples": step * summary.num_rows,
        "system/tps": summary.num_tokens / total if total else 0.0,
        "system/actor_infer/response/tps": summary.num_generated / generating if generating else 0.0,
    }


def record_of_sample(sample: Sample) -> dict[str, Any]:
    """An answer and its score as JSON data."""
    row, score = sample.prompt.row, sample.score
    return {
        "id": row.id,
        "tag": row.tag,
        "domain": row.domain,
        "group": sample.group,
        "prompt": row.prompt,
        "response": sample.text,
        "score": score.score,
        "status": score.status.value,
        "reason": score.reason,
    }
