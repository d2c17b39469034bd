"""Steps per hour of the quickstart's task with and without asynchronous rollout, side by side in one run.

    python benchmarks/async_rollout.py [--steps 50] [--rounds 1] [--seed 0] [--folder FOLDER]

One in ten samples takes 20 times as long as the others until it has its score. What is slow is the verdict
(`late_verdicts.py`), as with a judge behind a network or programs in a sandbox elsewhere: the engines and the trainer
of a machine with few cores compete for them, so that overlapping these alone gains little here, while they wait for
the late verdicts together in both modes. Where engines and trainers have devices of their own, long answers leave the
others idle in the same way.

All modes have one engine and one trainer in processes of their own, the same model, prompts, learning rate and number
of steps; async_generation_ratio is 0, 1 and 2. Rounds alternate between the modes. Seconds are those of
`time/step_total` without validations and without the first two steps, which warm up; accuracies are those of the
held-out problems before the first step and after the last. Wanted: 1.5 times the steps per hour, the same accuracy, and
no sample older than the ratio allows, which the collector checks for every sample that is trained on.

What a ratio can gain: with L for the seconds from a batch's first prompt to its last score, and T for training, a step
takes L + T without overlap. With ratio r, a batch may take the rest of the step in which it is begun and r more to be
answered, else its samples would grow too old: (1 + r) steps without the last one's training must be L at least, so that
a step takes no less than (L + T) / (1 + r), and no less than T or what the engines need. Ratio 1 gains at most 2.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "quickstart"))

import prepare
from late_verdicts import LATE, SECONDS
from machine import busy_cores, load_average, write_record
from whole_run import metrics_of_run

WANTED = 1.5
WARM = 2
PROCESSES = 64
"""Verdicts that are waited for at once: with 256 answers a step, the late ones decide, not the number of graders."""
MODES = {"sync": 0, "async 1": 1, "async 2": 2}


@dataclass(frozen=True)
class Result:
    """One run: seconds of its steps after the warm ones, accuracies before and after, the oldest sample's age."""

    mode: str
    seconds: list[float]
    before: float
    after: float
    oldest: float

    @property
    def steps_per_hour(self) -> float:
        """Steps per hour at the pace of this run."""
        return 3600 * len(self.seconds) / sum(self.seconds)


def main() -> None:
    """All runs, then a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where runs write; by default a folder that is removed")
    given = parser.parse_args()
    print(f"{busy_cores():.1f} cores are busy before this begins; load {load_average():.1f}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        assets = prepare.prepare(folder / "assets", given.seed)
        results = [
            run(mode, folder / f"{mode}-{number}".replace(" ", "-"), assets, given.steps, given.seed)
            for number in range(given.rounds)
            for mode in MODES
        ]
    print_table(results)
    record = {f"{one.mode} {number}": vars(one) for number, one in enumerate(results)}
    print(f"record: {write_record('async_rollout', ('torch', 'ray', 'transformers'), record)}")
    if any(one.oldest > MODES[one.mode] for one in results):
        sys.exit("a sample was older than async_generation_ratio allows")


def run(mode: str, folder: Path, assets: prepare.Assets, steps: int, seed: int) -> Result:
    """One run in a process of its own."""
    overrides = [
        f"seed={seed}",
        f"max_steps={steps}",
        f"eval_steps={steps}",
        "save_steps=0",
        f"async_generation_ratio={MODES[mode]}",
        "actor_infer.device_mapping=[1]",
        f"rewards.math_rule.worker_cls={Path(__file__).parent / 'late_verdicts.py'}:LateVerdicts",
        f"rewards.math_rule.max_concurrency={PROCESSES}",
        "rewards.math_rule.timeout_s=30",
        f"pretrain={assets.model.resolve()}",
        f"actor_train.data_args.dataset_dir={assets.data.resolve()}",
        f"validation.data_args.dataset_dir={assets.data.resolve()}",
    ]
    records = metrics_of_run("quickstart/rlvr.yaml", folder, overrides)
    accuracies = [record["val_correct/all/mean"] for record in records if "val_correct/all/mean" in record]
    timed = [record for record in records if record["step"] > WARM]
    seconds = [record["time/step_total"] - record.get("time/val_step", 0.0) for record in timed]
    oldest = max(record.get("scheduler/off_policy_max", 0.0) for record in records)
    result = Result(mode, seconds, accuracies[0], accuracies[-1], oldest)
    print(
        f"{mode}: {result.steps_per_hour:.0f} steps/h, accuracy {result.before:.2f} -> {result.after:.2f}", flush=True
    )
    return result


def print_table(results: list[Result]) -> None:
    """One row per mode, over all rounds, and the ratio beside what is wanted."""
    print(f"\nverdicts take {SECONDS:g} s, one in ten {SECONDS * LATE:g} s")
    print(f"{'':<8}{'steps/h':>10}{'s per step':>12}{'before':>8}{'after':>8}{'oldest':>8}{'/ sync':>8}")
    pace = {}
    for mode in MODES:
        ours = [one for one in results if one.mode == mode]
        seconds = [second for one in ours for second in one.seconds]
        pace[mode] = 3600 * len(seconds) / sum(seconds)
        print(
            f"{mode:<8}{pace[mode]:>10.0f}{median(seconds):>12.2f}{mean(one.before for one in ours):>8.2f}"
            f"{mean(one.after for one in ours):>8.2f}{max(one.oldest for one in ours):>8.0f}"
            f"{pace[mode] / pace['sync']:>8.2f}"
        )
    best = max(pace[mode] / pace["sync"] for mode in MODES if MODES[mode])
    print(f"async / sync: {best:.2f} (wanted {WANTED}: {'yes' if best >= WANTED else 'no'}); load {load_average():.1f}")


if __name__ == "__main__":
    main()
