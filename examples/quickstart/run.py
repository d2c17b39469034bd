"""The quickstart in one command: make a tiny model and its data, let it learn by RLVR, show what it learnt.

    python examples/quickstart/run.py [--seed 0] [key=value ...]

Hardware: one CPU core is enough. The last line of the output is for programs: RESULT before=... after=... seconds=...
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import addition
import curve
import prepare
import warm_start

from roll_core.errors import told_to_users
from roll_core.pipelines.run import run_file

CONFIG = Path(__file__).parent / "rlvr.yaml"


def main() -> None:
    """Prepare, run, sum up."""
    parser = argparse.ArgumentParser(description="Watch a tiny model learn to carry.")
    parser.add_argument("--seed", type=int, default=0, help="of the model's first weights and of all sampling")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of rlvr.yaml to change")
    given = parser.parse_args()
    started = time.monotonic()
    print("making the model: it copies a student who forgets three of four carries", flush=True)
    prepare.prepare(prepare.FOLDER, given.seed, report=prepare.show_progress(warm_start.STEPS))
    with told_to_users():
        outcome = run_file(CONFIG, [f"seed={given.seed}", *given.overrides])
    rollouts, picture = prepare.FOLDER / "rollouts", prepare.FOLDER / "learning_curve.png"
    curve.draw(Path(outcome.locations["jsonl"]), picture)
    show_kinds(rollouts / "val-000000.jsonl", rollouts / f"val-{outcome.steps:06d}.jsonl")
    print(f"learning curve: {picture}")
    before, after = outcome.first_accuracy or 0.0, outcome.last_accuracy or 0.0
    print(f"RESULT before={before:.2f} after={after:.2f} seconds={time.monotonic() - started:.0f}")


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
