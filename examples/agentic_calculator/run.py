"""The example in one command: make a tiny model that rarely uses its calculator, let it learn to, show what it learnt.

    python examples/agentic_calculator/run.py [--seed 0] [key=value ...]

Hardware: one CPU core is enough. The last line of the output is for programs: RESULT before=... after=... seconds=...
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

CONFIG = Path(__file__).parent / "cpu.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    given = example_scripts.run_options("Watch a tiny model learn to use a calculator.", CONFIG).parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who calls the calculator rightly one time in five", flush=True)
    model = prepare.prepare(seed=given.seed, report=lessons.show_progress(prepare.STEPS))
    outcome = example_scripts.run(CONFIG, [f"seed={given.seed}", f"pretrain={model}", *given.overrides])
    example_scripts.print_result(outcome, started)


if __name__ == "__main__":
    main()
