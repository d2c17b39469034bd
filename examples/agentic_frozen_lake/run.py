"""The example in one command: make a tiny model that walks carelessly, let it learn on the ice, show what it learnt.

    python examples/agentic_frozen_lake/run.py [--seed 0] [--by-steps] [key=value ...]

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
BY_STEPS = ["custom_envs.Lake.env_manager_cls=step", "actor_train.training_args.gradient_accumulation_steps=14"]
"""An episode has four or five steps, so an optimiser step over half of a rollout has that many times the rows."""


def main() -> None:
    """Prepare, run, sum up."""
    parser = example_scripts.run_options("Watch a tiny model learn to cross a frozen lake.", CONFIG)
    parser.add_argument("--by-steps", action="store_true", help="a row for each step, in place of one for each episode")
    given = parser.parse_args()
    started = time.monotonic()
    print("making the model: it copies a walker who looks where it goes two times of five", flush=True)
    report = lessons.show_progress(prepare.STEPS)
    model = prepare.prepare(prepare.FOLDER, given.seed, report=report, by_steps=given.by_steps)
    overrides = [f"seed={given.seed}", f"pretrain={model}"]
    overrides += BY_STEPS if given.by_steps else []
    outcome = example_scripts.run(CONFIG, [*overrides, *given.overrides])
    example_scripts.print_result(outcome, started)


if __name__ == "__main__":
    main()
