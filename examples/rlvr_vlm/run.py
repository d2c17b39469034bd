"""The example in one command: a tiny model that mostly guesses colours learns to look at the images.

    python examples/rlvr_vlm/run.py [--seed 0] [--blank] [key=value ...]

Hardware: one CPU core. The last line of the output is for programs: RESULT before=... after=... seconds=...
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import prepare

from roll_core.errors import told_to_users
from roll_core.pipelines.run import run_file

CONFIG = Path(__file__).parent / "cpu.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    parser = argparse.ArgumentParser(description="Watch a tiny model learn to look at images.")
    parser.add_argument("--seed", type=int, default=0, help="of the model's first weights and of all sampling")
    parser.add_argument("--blank", action="store_true", help="leave the squares out: nothing can be learnt then")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of cpu.yaml to change")
    given = parser.parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who looks at one image in four", flush=True)
    prepare.prepare(prepare.FOLDER, given.seed, blank=given.blank, report=prepare.show_progress)
    with told_to_users():
        outcome = run_file(CONFIG, [f"seed={given.seed}", *given.overrides])
    before, after = outcome.first_accuracy or 0.0, outcome.last_accuracy or 0.0
    print(f"RESULT before={before:.2f} after={after:.2f} seconds={time.monotonic() - started:.0f}")


if __name__ == "__main__":
    main()
