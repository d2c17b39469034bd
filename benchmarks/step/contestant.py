"""The parent's side of taking turns: a loop in a process of its own, asked for a few steps at a time and measured."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from machine import QUIET, peak_memory_bytes, tree_cpu_seconds

BENCHMARKS = Path(__file__).parent.parent
MEMORY_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Round:
    """One turn, per step: processor seconds of the whole process tree, wall seconds, and what the loop told."""

    cpu: float
    wall: float
    steps: list[dict[str, float]]

    def told(self, name: str) -> float:
        """The mean of something the loop told of its steps."""
        return mean(step[name] for step in self.steps)


@dataclass
class Contestant:
    """A loop that waits at its gate. Start it, ask it for rounds, stop it.

    Attributes:
        name: as it stands in the tables.
        command: interpreter, `-m`, module and its arguments; the path of its log is added.
        tokens: what each step must generate, anything else ends the benchmark; None where that varies.
    """

    name: str
    command: Sequence[str]
    log: Path
    tokens: int | None
    rounds: list[Round] = field(default_factory=list)
    peak_bytes: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start the process and wait until its loop is ready."""
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(BENCHMARKS)}
        self.log.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*self.command, str(self.log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.versions = self._answer()

    def run(self, steps: int) -> Round:
        """Run steps, and measure them."""
        cpu, wall = tree_cpu_seconds(self._process.pid), time.perf_counter()
        told = self.ask(steps=steps)["steps"]
        wall = time.perf_counter() - wall
        cpu = tree_cpu_seconds(self._process.pid) - cpu
        wrong = [step["tokens"] for step in told if self.tokens not in (None, step["tokens"])]
        if wrong:
            raise SystemExit(f"{self.name} generated {wrong[0]} tokens in a step, not {self.tokens}: see {self.log}")
        return Round(cpu / steps, wall / steps, told)

    def measure_memory(self, steps: int) -> None:
        """Run steps in a round that is not timed, looking at the memory of the process tree all the while."""
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(MEMORY_INTERVAL_S):
                self.peak_bytes = max(self.peak_bytes, peak_memory_bytes(self._process.pid))

        looking = threading.Thread(target=look)
        looking.start()
        self.ask(steps=steps)
        is_over.set()
        looking.join()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def stop(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "nothing was logged"
            raise SystemExit(f"{self.name} ended before its time\n{tail}\n  log: {self.log}")
        answer: dict[str, Any] = json.loads(line)
        return answer
