"""Steps per hour of the frozen lake where one environment in ten is slow, played in three ways, side by side.

    python benchmarks/async_envs.py [--steps 12] [--rounds 1] [--seed 0] [--folder FOLDER]

One environment in ten sleeps 50 times as long as the others before each of its steps (`sleepy_lake.py`), as one does
that waits for a sandbox or a site elsewhere. The ways:

    sync    lockstep: all environments take a turn, then all of them do again; nothing is trained meanwhile
    free    each environment goes on as soon as its own answer is there; nothing is trained meanwhile
    async   as free, with async_generation_ratio 1: episodes flow while the trainer trains, at most one step old

All have one engine and one trainer in processes of their own, the same model, lakes, number of environments, learning
rate and number of steps, and no validation. Rounds alternate between the ways. Seconds are those of `time/step_total`
without the first two steps, which warm up. Success is that of the episodes of the last step. Wanted: twice the steps
per hour of sync for async, and no episode older than async_generation_ratio allows, which is checked for every episode
of every step. Exits with 1 where one is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "agentic_frozen_lake"))

import prepare
from machine import busy_cores, load_average, write_record
from sleepy_lake import LATE, ONE_IN, SECONDS
from whole_run import metrics_of_run

WANTED = 2.0
WARM = 2
MODES = {
    "sync": ["async_generation_ratio=0", "train_env_manager.pace=lockstep"],
    "free": ["async_generation_ratio=0", "train_env_manager.pace=free"],
    "async": ["async_generation_ratio=1"],
}
BOUNDS = {"sync": 0, "free": 0, "async": 1}


@dataclass(frozen=True)
class Result:
    """One run: seconds of its steps after the warm ones, success in the last, the oldest episode's age."""

    mode: str
    seconds: list[float]
    success: float
    oldest: float
    load: float

    @property
    def steps_per_hour(self) -> float:
        """Steps per hour at the pace of this run."""
        return 3600 * len(self.seconds) / sum(self.seconds)


def main() -> None:
    """All runs, then a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where runs write; by default a folder that is removed")
    parser.add_argument("--model", type=Path, help="a model that the example has made; by default one is made")
    given = parser.parse_args()
    print(f"{busy_cores():.1f} cores are busy before this begins; load {load_average():.1f}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        model = given.model or prepare.prepare(folder / "assets", given.seed)
        results = [
            run(mode, folder / f"{mode}-{number}", model.resolve(), given.steps, given.seed)
            for number in range(given.rounds)
            for mode in MODES
        ]
    print_table(results)
    record = {f"{one.mode} {number}": vars(one) for number, one in enumerate(results)}
    print(f"record: {write_record('async_envs', ('torch', 'ray', 'transformers'), record)}")
    if any(one.oldest > BOUNDS[one.mode] for one in results):
        sys.exit("an episode was older than async_generation_ratio allows")


def run(mode: str, folder: Path, model: Path, steps: int, seed: int) -> Result:
    """One run in a process of its own."""
    overrides = [
        f"seed={seed}",
        f"max_steps={steps}",
        "eval_steps=0",
        "save_steps=0",
        "actor_infer.device_mapping=[1]",
        f"custom_envs.Lake.env_type={Path(__file__).parent / 'sleepy_lake.py'}:SleepyLake",
        f"pretrain={model}",
        *MODES[mode],
    ]
    records = metrics_of_run("agentic_frozen_lake/cpu.yaml", folder, overrides)
    seconds = [record["time/step_total"] for record in records if record["step"] > WARM]
    oldest = max(record.get("scheduler/off_policy_max", 0.0) for record in records)
    result = Result(mode, seconds, records[-1]["traj/success"], oldest, load_average())
    print(f"{mode}: {result.steps_per_hour:.0f} steps/h, {median(seconds):.2f} s per step", flush=True)
    return result


def print_table(results: Sequence[Result]) -> None:
    """One row per way, over all rounds, and the ratios to sync beside what is wanted."""
    print(f"\nsteps of environments take {SECONDS:g} s, those of one environment in {ONE_IN} {SECONDS * LATE:g} s")
    print(f"{'':<8}{'steps/h':>10}{'s per step':>12}{'x sync':>8}{'success':>9}{'oldest':>8}{'load':>7}")
    pace: dict[str, float] = {}
    for mode in MODES:
        ours = [one for one in results if one.mode == mode]
        seconds = [second for one in ours for second in one.seconds]
        pace[mode] = 3600 * len(seconds) / sum(seconds)
        print(
            f"{mode:<8}{pace[mode]:>10.0f}{median(seconds):>12.2f}{pace[mode] / pace['sync']:>8.2f}"
            f"{mean(one.success for one in ours):>9.2f}{max(one.oldest for one in ours):>8.0f}"
            f"{mean(one.load for one in ours):>7.1f}"
        )
    ratio = pace["async"] / pace["sync"]
    print(f"async / sync: {ratio:.2f} (wanted {WANTED:g}: {'yes' if ratio >= WANTED else 'no'})")


if __name__ == "__main__":
    main()
