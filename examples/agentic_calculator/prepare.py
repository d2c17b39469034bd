"""Make what the example needs: a tiny model that copied a hasty student, and its tokenizer.

    python examples/agentic_calculator/prepare.py [--folder output/calculator] [--seed 0]

CPU only, nothing is downloaded. A model that is there already, made with the same settings, is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import agentic_warm_start
import demonstrations
import example_scripts
import lessons

FOLDER = Path("output/calculator")
STEPS = agentic_warm_start.STEPS
RECIPE = 1
"""Raise it when a change to the recipe makes another model."""


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    steps: int = STEPS,
    report: lessons.Report = lessons.silence,
) -> Path:
    """The model's folder; see `agentic_warm_start.prepare`."""
    settings = {"recipe": RECIPE, "care": demonstrations.CARE, "malformed": demonstrations.MALFORMED}
    return agentic_warm_start.prepare(
        folder / "model", settings, demonstrations.demonstrations, seed=seed, steps=steps, report=report
    )


def main() -> None:
    """Make the model and say where it is."""
    given = example_scripts.prepare_options((__doc__ or "").splitlines()[0], FOLDER, STEPS).parse_args()
    report = lessons.show_progress(given.steps)
    print(f"model {prepare(given.folder, given.seed, given.steps, report)}")


if __name__ == "__main__":
    main()
