"""Make what the example needs: images and data files, and a tiny model that learnt from a careless student.

    python examples/rlvr_vlm/prepare.py [--folder output/rlvr_vlm] [--seed 0] [--blank]

CPU only; nothing is downloaded. What is there already, whole and made with the same settings, is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import example_scripts
import kept_files
import lessons
import squares
import tiny_vision_model
import warm_start

FOLDER = Path("output/rlvr_vlm")
TRAINING, HELD_OUT = 480, 240
RECIPE = 1
"""Raise it when a change to the recipe makes other files."""


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    *,
    steps: int = warm_start.STEPS,
    blank: bool = False,
    report: lessons.Report = lessons.silence,
) -> None:
    """Make <folder>/model and <folder>/data unless they are there already.

    Args:
        seed: decides the model's first weights and its lessons; the problems are always the same.
        steps: steps of the warm start, which always sees the images.
        blank: leave the squares out of the images to train and test on.
    """
    settings = {"recipe": RECIPE, "seed": seed, "steps": steps, "blank": blank}
    kept_files.make_once(folder, ["model", "data"], settings, lambda place: _make(place, seed, steps, blank, report))


def _make(folder: Path, seed: int, steps: int, blank: bool, report: lessons.Report) -> None:
    import torch

    lessons.prepare_torch()
    data, model_folder = folder / "data", folder / "model"
    for each in (data, model_folder):
        each.mkdir(parents=True)
    write_rows(data, "train", list(squares.squares(TRAINING, 1)), blank)
    write_rows(data, "heldout", list(squares.squares(HELD_OUT, 2)), blank)
    tokenizer = tiny_vision_model.make_tokenizer([f"user\n{squares.QUESTION}\nassistant\n", *squares.COLOURS] * 4)
    torch.manual_seed(seed)
    model = tiny_vision_model.make_model(tokenizer)
    tiny_vision_model.write_image_processor(model_folder)
    warm_start.train(model, tokenizer, model_folder, seed, steps, report)
    model.save_pretrained(model_folder)
    tokenizer.save_pretrained(model_folder)


def write_rows(data: Path, name: str, problems: Sequence[squares.Square], blank: bool) -> None:
    """Write <data>/<name>.jsonl, and the images it names under <data>/<name>."""
    (data / name).mkdir()
    lines = []
    for number, problem in enumerate(problems):
        image = f"{name}/{number:04d}.png"
        squares.write_image(problem, data / image, blank)
        lines.append(json.dumps(squares.row(problem, image)))
    (data / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Make the files and say where they are."""
    parser = example_scripts.prepare_options((__doc__ or "").splitlines()[0], FOLDER, warm_start.STEPS)
    parser.add_argument("--blank", action="store_true", help="leave the squares out of the images")
    given = parser.parse_args()
    report = lessons.show_progress(given.steps)
    prepare(given.folder, given.seed, steps=given.steps, blank=given.blank, report=report)
    print(f"model {given.folder / 'model'}, data {given.folder / 'data'}")


if __name__ == "__main__":
    main()
