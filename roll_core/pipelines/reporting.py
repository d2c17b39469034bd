"""What a run tells: metrics to the trackers, progress and samples to the terminal, rollouts to files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.display import ConstantRewardAlarm, RunDisplay
from roll_core.display import Sample as ShownSample
from roll_core.errors import RollError
from roll_core.rollout.sample import Sample
from roll_core.trackers import RunTrackers, Timers

SHOWN_SAMPLES = 10


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

    def step(self, step: int, metrics: Mapping[str, float], batch: DataProto) -> None:
        """A training step has ended."""
        times = self.timers.take()
        complete = {**metrics, **times, **self._rates(step, times, batch)}
        self.trackers.log(step, complete)
        self.display.step(step, complete)
        if self.config.logging_steps and step % self.config.logging_steps == 0:
            rows = range(0, len(batch), max(1, len(batch) // SHOWN_SAMPLES))
            self.display.samples([_shown(batch, row) for row in rows[:SHOWN_SAMPLES]])
        scores = batch["scores"]
        warning = self.alarm.observe(float(scores.min()), float(scores.max()), float(batch["advantages"].abs().max()))
        if warning:
            self.display.notice(warning)
        if self.config.rollout_dump_dir:
            write_lines(Path(self.config.rollout_dump_dir) / f"step-{step:06d}.jsonl", records(batch, self.text_of))

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
        if self.config.rollout_dump_dir:
            write_lines(Path(self.config.rollout_dump_dir) / f"val-{step:06d}.jsonl", map(_record_of_sample, samples))

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


def records(batch: DataProto, text_of: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    """The rows of a step as JSON data; `advantages` are null at tokens that are not trained on."""
    for row in range(len(batch)):
        length = int(batch["response_lengths"][row])
        advantages, trained = batch["advantages"][row, :length], batch["final_response_mask"][row, :length]
        yield {
            "id": batch["id"][row],
            "tag": batch["tag"][row],
            "domain": batch["domain"][row],
            "group": int(batch["group"][row]),
            "prompt": batch["prompt_text"][row],
            "response": batch["response_text"][row],
            "score": float(batch["scores"][row]),
            "status": batch["status"][row],
            "reason": batch["reason"][row],
            "tokens": [text_of(token) for token in batch["responses"][row, :length].tolist()],
            "advantages": [
                float(f"{value:.6g}") if is_trained else None
                for value, is_trained in zip(advantages.tolist(), trained.tolist())
            ],
        }


def _record_of_sample(sample: Sample) -> dict[str, Any]:
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


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as JSON lines.

    Raises:
        RollError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    except OSError as error:
        raise RollError(
            f"rollout_dump_dir: {path} could not be written: {error.strerror or error}"
            "\n  try: make room there, name another folder, or leave rollout_dump_dir out"
        ) from error
