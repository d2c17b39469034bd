"""Make what the example needs: images and data files, and a tiny model that learnt from a careless student.

    python examples/rlvr_vlm/prepare.py [--folder output/rlvr_vlm] [--seed 0] [--blank]

CPU only; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import squares
import tiny_vision_model
import warm_start

FOLDER = Path("output/rlvr_vlm")
TRAINING, HELD_OUT = 480, 240


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    *,
    steps: int = warm_start.STEPS,
    blank: bool = False,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Write <folder>/model and <folder>/data, in the place of what is there.

    Args:
        seed: decides the model's first weights and its lessons; the problems are always the same.
        steps: lessons of the warm start, which always sees the images.
        blank: leave the squares out of the images to train and test on.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.set_num_threads(1)
    data, model_folder = folder / "data", folder / "model"
    for each in (data, model_folder):
        shutil.rmtree(each, ignore_errors=True)
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


def show_progress(step: int, loss: float) -> None:
    """A line per fifty steps of the warm start."""
    if step % 50 == 0:
        print(f"warm start: step {step}, loss {loss:.3f}", flush=True)


def main() -> None:
    """Make the files and say where they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=warm_start.STEPS, help="lessons of the warm start")
    parser.add_argument("--blank", action="store_true", help="leave the squares out of the images")
    given = parser.parse_args()
    prepare(given.folder, given.seed, steps=given.steps, blank=given.blank, report=show_progress)
    print(f"model {given.folder / 'model'}, data {given.folder / 'data'}")


if __name__ == "__main__":
    main()
