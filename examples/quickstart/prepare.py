"""Make what the quickstart needs: a tiny model that learnt from a forgetful student, its tokenizer, and the data.

    python examples/quickstart/prepare.py [--folder output/quickstart] [--seed 0]

CPU only, nothing is downloaded, about 25 seconds of one core. What is there already, whole and made with the same
settings, is kept.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import addition
import example_scripts
import kept_files
import lessons
import tiny_model
import warm_start

FOLDER = Path("output/quickstart")
RECIPE = 1
"""Raise it when a change to the recipe makes other files."""


@dataclass(frozen=True)
class Assets:
    """Where the quickstart's files are."""

    folder: Path

    @property
    def model(self) -> Path:
        """Weights and tokenizer, as transformers saves them."""
        return self.folder / "model"

    @property
    def data(self) -> Path:
        """train.jsonl and heldout.jsonl."""
        return self.folder / "data"


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    steps: int = warm_start.STEPS,
    report: lessons.Report = lessons.silence,
) -> Assets:
    """Make the files under a folder unless they are there already.

    Args:
        seed: decides the model's first weights and the order of its lessons; the problems are always the same.
        steps: steps of the warm start.
    """
    settings = {"recipe": RECIPE, "seed": seed, "steps": steps}
    kept_files.make_once(folder, ["model", "data"], settings, lambda place: _make(Assets(place), seed, steps, report))
    return Assets(folder)


def _make(assets: Assets, seed: int, steps: int, report: lessons.Report) -> None:
    import torch

    lessons.prepare_torch()
    training, held_out = addition.pairs()
    assets.data.mkdir(parents=True)
    _write_rows(assets.data / "train.jsonl", training[: addition.TRAINING_ROWS])
    _write_rows(assets.data / "heldout.jsonl", held_out)
    tokenizer = tiny_model.make_tokenizer(_samples(training[:2000]))
    torch.manual_seed(seed)
    model = tiny_model.make_model(tokenizer)
    warm_start.train(model, tokenizer, training, seed, steps, report)
    model.save_pretrained(assets.model)
    tokenizer.save_pretrained(assets.model)


def _samples(pairs: Sequence[addition.Pair]) -> list[str]:
    """Texts that the tokenizer learns its words from."""
    choice = random.Random(0)
    return [
        f"system\n{addition.SYSTEM}\nuser\n{addition.question(pair)}\nassistant\n{addition.demonstration(pair, choice)}"
        for pair in pairs
    ]


def _write_rows(path: Path, pairs: Sequence[addition.Pair]) -> None:
    first = 0 if path.stem == "train" else 1_000_000
    lines = [json.dumps(addition.row(first + number, pair)) for number, pair in enumerate(pairs)]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Make the files and say where they are and how well the model adds."""
    parser = example_scripts.prepare_options((__doc__ or "").splitlines()[0], FOLDER, warm_start.STEPS)
    parser.add_argument("--evaluate", action="store_true", help="also measure the model on the held-out problems")
    given = parser.parse_args()
    assets = prepare(given.folder, given.seed, given.steps, lessons.show_progress(given.steps))
    print(f"model {assets.model}, data {assets.data}")
    if given.evaluate:
        _evaluate(assets, given.seed)


def _evaluate(assets: Assets, seed: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(assets.model)
    tokenizer = AutoTokenizer.from_pretrained(assets.model)
    _, held_out = addition.pairs()
    for greedy in (True, False):
        torch.manual_seed(seed)
        rows = warm_start.answer(model, tokenizer, held_out, greedy)
        kinds = ", ".join(f"{kind} {count}" for kind, count in addition.errors_by_kind(rows).most_common())
        print(f"{'greedy' if greedy else 'sampled'} accuracy {warm_start.accuracy(rows):.3f} ({kinds})")


if __name__ == "__main__":
    main()
