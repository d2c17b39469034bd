"""The memory estimate against the peaks of processes that really train, score and generate, on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory_plan.py"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's highest memory since a moment"
)


def measure(cases: str) -> None:
    """Measure cases; the benchmark fails where an estimate is more than a fifth off."""
    done = subprocess.run([sys.executable, str(BENCHMARK), "--cases", cases], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trainer_needs_what_was_estimated() -> None:
    measure("train-weights")


@pytest.mark.slow
def test_every_kind_of_need_is_estimated_within_a_fifth() -> None:
    trainers = "train-accumulated,train-ranks,train-bf16,train-activations,train-checkpointed,train-vocabulary"
    measure(f"{trainers},score,generate-cache")
