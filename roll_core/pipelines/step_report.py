"""What is told of a step's rows: a summary for the terminal, and the rows as records for files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.config.schema import PPOConfig
from roll_core.data import DataProto
from roll_core.display import Sample as ShownSample
from roll_core.errors import RollError

SHOWN_SAMPLES = 10


@dataclass(frozen=True)
class StepSummary:
    """A few numbers about a step's rows, and the rows that are shown."""

    num_rows: int
    num_tokens: float
    num_generated: float
    lowest_score: float
    highest_score: float
    largest_advantage: float
    samples: Sequence[ShownSample]


def summary_of(batch: DataProto, samples: Sequence[ShownSample]) -> StepSummary:
    """The summary of a shaped batch."""
    scores = batch["scores"]
    return StepSummary(
        num_rows=len(batch),
        num_tokens=float((batch["prompt_lengths"] + batch["response_lengths"]).sum()),
        num_generated=float(batch["response_lengths"].sum()),
        lowest_score=float(scores.min()),
        highest_score=float(scores.max()),
        largest_advantage=float(batch["advantages"].abs().max()),
        samples=samples,
    )


def shown_rows(config: PPOConfig, num_rows: int, step: int) -> list[int]:
    """Rows that the terminal shows of a step: some, spread over the batch, every `logging_steps`."""
    if not config.logging_steps or step % config.logging_steps:
        return []
    return list(range(0, num_rows, max(1, num_rows // SHOWN_SAMPLES)))[:SHOWN_SAMPLES]


def shown(batch: DataProto, row: int) -> ShownSample:
    """A row as the terminal shows it."""
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
