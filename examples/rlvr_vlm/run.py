"""The example in one command: a tiny model that mostly guesses colours learns to look at the images.

    python examples/rlvr_vlm/run.py [--seed 0] [--blank] [key=value ...]

Hardware: one CPU core. The last line of the output is for programs: RESULT before=... after=... seconds=...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import example_scripts
import lessons
import prepare
import warm_start

CONFIG = Path(__file__).parent / "cpu.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    parser = example_scripts.run_options("Watch a tiny model learn to look at images.", CONFIG)
    parser.add_argument("--blank", action="store_true", help="leave the squares out: nothing can be learnt then")
    given = parser.parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who looks at one image in four", flush=True)
    report = lessons.show_progress(warm_start.STEPS)
    prepare.prepare(prepare.FOLDER, given.seed, blank=given.blank, report=report)
    outcome = example_scripts.run(CONFIG, [f"seed={given.seed}", *given.overrides])
    example_scripts.print_result(outcome, started)


if __name__ == "__main__":
    main()
