"""The example in one command: make a tiny model that rarely uses its calculator, let it learn to, show what it learnt.

    python examples/agentic_calculator/run.py [--seed 0] [key=value ...]

Hardware: one CPU core is enough. The last line of the output is for programs: RESULT before=... after=... seconds=...
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import agentic_warm_start
import prepare

from roll_core.errors import told_to_users
from roll_core.pipelines.run import run_file

CONFIG = Path(__file__).parent / "cpu.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    parser = argparse.ArgumentParser(description="Watch a tiny model learn to use a calculator.")
    parser.add_argument("--seed", type=int, default=0, help="of the model's first weights, problems and all sampling")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of cpu.yaml to change")
    given = parser.parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who calls the calculator rightly one time in five", flush=True)
    model = prepare.prepare(seed=given.seed, report=agentic_warm_start.show_progress(prepare.STEPS))
    with told_to_users():
        outcome = run_file(CONFIG, [f"seed={given.seed}", f"pretrain={model}", *given.overrides])
    before, after = outcome.first_accuracy or 0.0, outcome.last_accuracy or 0.0
    print(f"RESULT before={before:.2f} after={after:.2f} seconds={time.monotonic() - started:.0f}")


if __name__ == "__main__":
    main()
