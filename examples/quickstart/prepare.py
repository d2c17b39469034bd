"""Make what the quickstart needs: a tiny model that learnt from a forgetful student, its tokenizer, and the data.

    python examples/quickstart/prepare.py [--folder output/quickstart] [--seed 0]

CPU only, nothing is downloaded, about 25 seconds of one core. What is there already, whole and made with the same
settings, is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import addition
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

    @property
    def manifest(self) -> Path:
        """What the files were made with, and their sizes. It is written last, so it stands for whole files only."""
        return self.folder / "assets.json"


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    steps: int = warm_start.STEPS,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Assets:
    """Make the files under a folder unless they are there already.

    Args:
        seed: decides the model's first weights and the order of its lessons; the problems are always the same.
        steps: lessons of the warm start.
        report: called with each step of the warm start, counted from 1, and its loss.
    """
    assets = Assets(folder)
    # The versions matter: transformers writes configs that an older one does not read alike. They are read from the
    # installed packages' metadata, as importing both takes two seconds.
    settings = {
        "recipe": RECIPE,
        "seed": seed,
        "steps": steps,
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
    if _is_whole(assets, settings):
        return assets
    partial = Assets(folder / f".partial-{os.getpid()}")
    shutil.rmtree(partial.folder, ignore_errors=True)
    try:
        _make(partial, seed, steps, report)
        _move_in(partial, assets)
    finally:
        shutil.rmtree(partial.folder, ignore_errors=True)
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in _files(assets)}
    _write_atomically(assets.manifest, json.dumps({"settings": settings, "sizes": sizes}, indent=2) + "\n")
    return assets


def _is_whole(assets: Assets, settings: dict[str, object]) -> bool:
    if not assets.manifest.is_file():
        return False
    try:
        manifest = json.loads(assets.manifest.read_text())
    except ValueError:
        return False
    sizes = {str(path.relative_to(assets.folder)): path.stat().st_size for path in _files(assets)}
    return manifest == {"settings": settings, "sizes": sizes}


def _files(assets: Assets) -> list[Path]:
    return sorted(path for folder in (assets.model, assets.data) for path in folder.rglob("*") if path.is_file())


def _make(assets: Assets, seed: int, steps: int, report: Callable[[int, float], None]) -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # One thread: the model is so small that a second one gains little on an idle machine, and makes the training
    # many times slower on a busy one.
    torch.set_num_threads(1)
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


def _move_in(partial: Assets, assets: Assets) -> None:
    """Put whole folders in the place of old ones. A manifest of the old ones goes first: no mixture is ever used."""
    assets.manifest.unlink(missing_ok=True)
    for new, old in ((partial.model, assets.model), (partial.data, assets.data)):
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def show_progress(steps: int) -> Callable[[int, float], None]:
    """A `report` for `prepare`: one line that is rewritten on a terminal, else a line per hundred steps."""
    begin = time.monotonic()
    is_terminal = sys.stdout.isatty()

    def report(step: int, loss: float) -> None:
        line = f"warm start: step {step}/{steps}, loss {loss:.3f}, {time.monotonic() - begin:.0f} s"
        if is_terminal:
            print(f"\r{line}", end="\n" if step == steps else "", flush=True)
        elif step % 100 == 0 or step == steps:
            print(line, flush=True)

    return report


def main() -> None:
    """Make the files and say where they are and how well the model adds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=warm_start.STEPS, help="lessons of the warm start")
    parser.add_argument("--evaluate", action="store_true", help="also measure the model on the held-out problems")
    given = parser.parse_args()
    assets = prepare(given.folder, given.seed, given.steps, show_progress(given.steps))
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
