"""How long it takes to get going: from `roll run` to the quickstart's first optimiser step, and where that goes.

Also `roll plugins` and `roll check`, and what the heavy imports cost a process. Every figure is of fresh processes.
Start-up is disk and two cores' worth of imports, so measure it on an idle machine: the table says how busy it was.

    python benchmarks/startup.py [--repeats 3]

Takes about a minute on two idle cores. The quickstart's model and data are made first where they are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from machine import QUIET, ROOT, busy_cores, write_record

CONFIG = "examples/quickstart/rlvr.yaml"
RUN_TARGET_S, PLUGINS_TARGET_S, CHECK_TARGET_S = 20.0, 0.3, 1.5
GAP_SHOWN_S = 0.05
"""Time between two phases, spent on imports, is shown from here."""

IMPORTS = {
    "numpy": "import numpy",
    "torch": "import torch",
    "ray": "import ray",
    "transformers, a model class, after torch": "import torch\n#\nfrom transformers import Qwen3ForCausalLM",
    "tensordict, after torch": "import torch\n#\nimport tensordict",
}
"""What a process may import; only what stands below # is timed."""


@dataclass(frozen=True)
class Cost:
    """Seconds of some repeats of the same."""

    wall: list[float]
    cpu: list[float]

    def __str__(self) -> str:
        return f"{min(self.wall):.2f} / {median(self.wall):.2f} | {min(self.cpu):.2f} / {median(self.cpu):.2f}"


def run_once(folder: Path, record: Path) -> dict[str, Any]:
    """One start of the quickstart, up to its first optimiser step."""
    overrides = {
        "output_dir": folder,
        "logging_dir": folder / "logs",
        "checkpoint_config.output_dir": folder / "checkpoints",
        "tracker_kwargs.log_dir": folder / "tensorboard",
        "rollout_dump_dir": folder / "rollouts",
    }
    trace = [sys.executable, str(Path(__file__).parent / "startup_trace.py"), str(time.time()), str(record), CONFIG]
    command = [*trace, *(f"{key}={value}" for key, value in overrides.items())]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **QUIET}, capture_output=True, text=True)
    if not record.exists():
        raise SystemExit(f"the run did not reach its first optimiser step\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(record.read_text())
    return result


def time_command(command: Sequence[str], repeats: int) -> Cost:
    """Wall and processor seconds of a command that must succeed."""
    cost = Cost([], [])
    for _ in range(repeats):
        before, start = os.times(), time.perf_counter()
        subprocess.run(command, cwd=ROOT, env={**os.environ, **QUIET}, check=True, capture_output=True)
        cost.wall.append(time.perf_counter() - start)
        after = os.times()
        cost.cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return cost


def time_import(code: str, repeats: int) -> Cost | None:
    """Seconds that the last part of some imports takes in a fresh process; None where a package is missing."""
    before, _, timed = code.rpartition("#")
    program = (
        f"import time\n{before}\nw, c = time.perf_counter(), time.process_time()\n{timed}\n"
        "print(time.perf_counter() - w, time.process_time() - c)"
    )
    cost = Cost([], [])
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **QUIET}, capture_output=True, text=True
        )
        if "ModuleNotFoundError" in done.stderr:
            return None
        wall, cpu = done.stdout.split()[-2:]
        cost.wall.append(float(wall))
        cost.cpu.append(float(cpu))
    return cost


def phase_rows(result: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Phase, when it began and how long it took; what lies between two is imports and small things."""
    end = 0.0
    for phase, begin, stop, is_main in sorted(result["spans"], key=lambda span: float(span[1])):
        if not is_main:
            yield f"(meanwhile, in another thread) {phase}", begin, stop - begin
            continue
        if begin - end > GAP_SHOWN_S:
            name = f"(imports and small things before: {phase})" if end else "Python and the command line"
            yield name, end, begin - end
        yield phase, begin, stop - begin
        end = stop


def process_rows(result: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Processor seconds by kind of process."""
    kinds = {
        "startup_trace": "driver",
        "TrainWorker": "trainer",
        "InferWorker": "engine",
        "RewardActor": "reward worker",
        "roll_core.rewards": "reward worker",
        "roll_core.cluster.guard": "guard",
        "IDLE": "workers that Ray starts in advance",
    }
    totals: dict[str, float] = {}
    for name, seconds in result["processes"].items():
        kind = next((kind for part, kind in kinds.items() if part in name), "Ray's own processes")
        totals[kind] = totals.get(kind, 0.0) + seconds
    totals["processes that have ended"] = result["cpu"] - sum(totals.values())
    yield from sorted(totals.items(), key=lambda item: -item[1])


def show_run(results: Sequence[dict[str, Any]]) -> None:
    """The table of a run's phases, for the fastest of its repeats."""
    walls, cpus = [result["wall"] for result in results], [result["cpu"] for result in results]
    best = min(results, key=lambda result: result["wall"])
    reached = "yes" if min(walls) <= RUN_TARGET_S else "no"
    print(
        f"\n## Quickstart, to the end of the first optimiser step\n\n"
        f"wall {min(walls):.1f} s at best, median {median(walls):.1f}; processor {min(cpus):.1f} s, median "
        f"{median(cpus):.1f}; wanted <= {RUN_TARGET_S:.0f} s of wall: {reached}\n"
    )
    print("| phase of the fastest | began at, s | took, s |\n|---|---|---|")
    for phase, begin, seconds in phase_rows(best):
        print(f"| {phase} | {begin:.2f} | {seconds:.2f} |")
    print("\n| processes of the fastest | processor s |\n|---|---|")
    for kind, seconds in process_rows(best):
        print(f"| {kind} | {seconds:.2f} |")


def main() -> None:
    """Print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    subprocess.run(
        [sys.executable, "examples/quickstart/prepare.py"], cwd=ROOT, check=True, env={**os.environ, **QUIET}
    )
    print(f"{busy_cores():.1f} cores busy before the start; least and median of {options.repeats} repeats")
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        results = [
            run_once(Path(name) / str(number), Path(name) / f"{number}.json") for number in range(options.repeats)
        ]
    show_run(results)
    roll = [sys.executable, "-m", "roll_core"]
    commands = {
        "roll plugins": (time_command([*roll, "plugins"], options.repeats), PLUGINS_TARGET_S),
        "roll check": (time_command([*roll, "check", CONFIG], options.repeats), CHECK_TARGET_S),
    }
    print("\n## Commands\n\n| command | wall s, least / median | processor s, least / median | wanted | reached |")
    print("|---" * 5 + "|")
    for command, (cost, target) in commands.items():
        print(f"| {command} | {cost} | <= {target} s | {'yes' if min(cost.wall) <= target else 'no'} |")
    imports = {label: time_import(code, options.repeats) for label, code in IMPORTS.items()}
    print("\n## Imports\n\n| import | wall s, least / median | processor s, least / median |\n|---|---|---|")
    for label, cost in imports.items():
        print(f"| {label} | {cost or 'not installed | '} |")
    record = write_record(
        "startup",
        ("torch", "transformers", "ray", "tensordict", "roll-core"),
        {
            "run": results,
            "commands": {name: cost.__dict__ for name, (cost, _target) in commands.items()},
            "imports": {label: cost.__dict__ if cost else None for label, cost in imports.items()},
        },
    )
    print(f"\nfigures: {record}")


if __name__ == "__main__":
    main()
