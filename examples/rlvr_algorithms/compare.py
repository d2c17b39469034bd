"""Run the configs of this folder, each with some seeds, and print a table of the held-out accuracy before and after.

    python examples/rlvr_algorithms/compare.py [--seeds 0 1 2] [--folder output/rlvr_algorithms] [grpo ppo ...]

Hardware: one CPU core. Time: about a minute a run, and half a minute a seed for the model they all begin from. A seed
is that of the model's first weights and of all sampling.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1] / "quickstart"))

import prepare

HERE = Path(__file__).parent
NAMES = ("grpo", "reinforce_plus_plus", "ppo", "rloo", "gspo", "cispo", "topr")
ACCURACY = "val_correct/all/mean"


def main() -> None:
    """All runs, then the table; exits with 1 where a run fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=Path("output/rlvr_algorithms"))
    given = parser.parse_args()
    found = {name: [learnt(name, seed, given.folder) for seed in given.seeds] for name in given.names}
    print_table(found, given.seeds)


def learnt(name: str, seed: int, folder: Path) -> tuple[float, float]:
    """Held-out accuracy before and after one run, whose files go to folder/seed-SEED/name."""
    assets = prepare.prepare(folder / f"seed-{seed}", seed)
    place = (folder / f"seed-{seed}" / name).resolve()
    overrides = [
        f"seed={seed}",
        f"pretrain={assets.model.resolve()}",
        f"actor_train.data_args.dataset_dir={assets.data.resolve()}",
        f"validation.data_args.dataset_dir={assets.data.resolve()}",
        f"output_dir={place}",
        f"logging_dir={place / 'logs'}",
        f"rollout_dump_dir={place / 'rollouts'}",
        f"checkpoint_config.output_dir={place / 'checkpoints'}",
        f"tracker_kwargs.log_dir={place / 'tensorboard'}",
    ]
    command = [sys.executable, "-m", "roll_core", "run", str(HERE / f"{name}.yaml"), *overrides]
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        print(result.stdout, file=sys.stderr)
        sys.exit(1)
    lines = (place / "runs" / name / "metrics.jsonl").read_text().splitlines()
    accuracies = [record[ACCURACY] for record in map(json.loads, lines) if ACCURACY in record]
    print(f"{name} seed {seed}: {accuracies[0]:.2f} -> {accuracies[-1]:.2f}", flush=True)
    return accuracies[0], accuracies[-1]


def print_table(found: dict[str, list[tuple[float, float]]], seeds: list[int]) -> None:
    """One row per algorithm, in Markdown; before -> after for each seed, and the mean gain in points."""
    print("\n| config | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean gain |")
    print("|---" * (len(seeds) + 2) + "|")
    for name, pairs in found.items():
        cells = [f"{before:.2f} -> {after:.2f}" for before, after in pairs]
        gain = 100 * mean(after - before for before, after in pairs)
        print(f"| {name} | " + " | ".join(cells) + f" | {gain:+.0f} points |")


if __name__ == "__main__":
    main()
