"""The quickstart in one command: make a tiny model and its data, let it learn by RLVR, show what it learnt.

    python examples/quickstart/run.py [--seed 0] [key=value ...]

Hardware: one CPU core is enough. The last line of the output is for programs: RESULT before=... after=... seconds=...
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import addition
import curve
import example_scripts
import lessons
import prepare
import warm_start

CONFIG = Path(__file__).parent / "rlvr.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    given = example_scripts.run_options("Watch a tiny model learn to carry.", CONFIG).parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who forgets three of four carries", flush=True)
    prepare.prepare(prepare.FOLDER, given.seed, report=lessons.show_progress(warm_start.STEPS))
    outcome = example_scripts.run(CONFIG, [f"seed={given.seed}", *given.overrides])
    rollouts, picture = prepare.FOLDER / "rollouts", prepare.FOLDER / "learning_curve.png"
    curve.draw(Path(outcome.locations["jsonl"]), picture)
    show_kinds(rollouts / "val-000000.jsonl", rollouts / f"val-{outcome.steps:06d}.jsonl")
    print(f"learning curve: {picture}")
    example_scripts.print_result(outcome, started)


def show_kinds(before: Path, after: Path) -> None:
    """What kind of mistakes the held-out answers had, before and after."""
    counts = [kinds(file) for file in (before, after)]
    print(f"held-out answers by kind:  {'before':>7} {'after':>7}")
    for kind in ("right", "carry forgot", "other"):
        print(f"  {kind:<24} {counts[0][kind]:>7} {counts[1][kind]:>7}")


def kinds(file: Path) -> Counter[str]:
    """Kinds of the answers in a file of rollouts."""
    return addition.errors_by_kind([json.loads(line) for line in file.read_text().splitlines()])


if __name__ == "__main__":
    main()
