"""Make what the example needs: a tiny model that copied a careless walker, and its tokenizer.

    python examples/agentic_frozen_lake/prepare.py [--folder output/frozen_lake] [--seed 0]

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

FOLDER = Path("output/frozen_lake")
STEPS = agentic_warm_start.STEPS
RECIPE = 1
"""Raise it when a change to the recipe makes another model."""


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    steps: int = STEPS,
    report: lessons.Report = lessons.silence,
    by_steps: bool = False,
) -> Path:
    """The model's folder; see `agentic_warm_start.prepare`.

    Args:
        by_steps: show the model single turns, as it sees them where each step is a row, in place of whole episodes.
    """
    return agentic_warm_start.prepare(
        folder / ("model_by_steps" if by_steps else "model"),
        {"recipe": RECIPE, "care": demonstrations.CARE},
        demonstrations.demonstrations,
        seed=seed,
        steps=steps,
        report=report,
        by_steps=by_steps,
    )


def main() -> None:
    """Make the model and say where it is."""
    parser = example_scripts.prepare_options((__doc__ or "").splitlines()[0], FOLDER, STEPS)
    parser.add_argument("--by-steps", action="store_true", help="for runs with env_manager_cls=step")
    given = parser.parse_args()
    report = lessons.show_progress(given.steps)
    print(f"model {prepare(given.folder, given.seed, given.steps, report, given.by_steps)}")


if __name__ == "__main__":
    main()
