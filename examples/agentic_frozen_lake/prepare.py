"""Make what the example needs: a tiny model that copied a careless walker, and its tokenizer.

    python examples/agentic_frozen_lake/prepare.py [--folder output/frozen_lake] [--seed 0]

CPU only, nothing is downloaded. A model that is there already, made with the same settings, is kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "quickstart"))
sys.path.insert(0, str(Path(__file__).parent))

import demonstrations
import tiny_model

if TYPE_CHECKING:
    import torch

    from roll_core.rollout.env_dialogue import Dialogue

FOLDER = Path("output/frozen_lake")
STEPS = 400
BATCH = 32
RECIPE = 1
"""Raise it when a change to the recipe makes another model."""

_PEAK_RATE = 5e-3
_WARM_UP = 20

Sample = tuple[list[int], list[bool]]
"""Token ids of an episode, and which of them the walker said."""


def prepare(
    folder: Path = FOLDER,
    seed: int = 0,
    steps: int = STEPS,
    report: Callable[[int, float], None] = lambda step, loss: None,
    by_steps: bool = False,
) -> Path:
    """The model's folder; made unless it is there already.

    Args:
        by_steps: show the model single turns, as it sees them where each step is a row, in place of whole episodes.
        seed: decides the model's first weights and the demonstrations.
        report: called with each step of the warm start, counted from 1, and its loss.
    """
    name = "model_by_steps" if by_steps else "model"
    model, manifest = folder / name, folder / f"{name}.json"
    settings = {"recipe": RECIPE, "seed": seed, "steps": steps, "care": demonstrations.CARE}
    settings |= {name: version(name) for name in ("torch", "transformers")}
    if manifest.is_file() and json.loads(manifest.read_text()) == settings and (model / "config.json").is_file():
        return model
    manifest.unlink(missing_ok=True)
    shutil.rmtree(model, ignore_errors=True)
    _make(model, seed, steps, report, by_steps)
    # Written last, so it stands for a whole model only.
    manifest.write_text(json.dumps(settings, indent=2) + "\n")
    return model


def _make(folder: Path, seed: int, steps: int, report: Callable[[int, float], None], by_steps: bool) -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    from roll_core.rollout.env_dialogue import Dialogue

    disable_progress_bar()
    # One thread: the model is so small that a second one gains little, and loses much on a busy machine.
    torch.set_num_threads(1)
    tokenizer = tiny_model.make_tokenizer(_texts())
    torch.manual_seed(seed)
    model = tiny_model.make_model(tokenizer)
    train(model, Dialogue(tokenizer, "native"), seed, steps, report, by_steps)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _texts() -> list[str]:
    """Texts that the tokenizer learns its words from."""
    some = islice(demonstrations.demonstrations(0), 500)
    return [
        f"system\nuser\n{observation}\nassistant\n{action}\n"
        for one in some
        for observation, action in zip(one.observations, one.actions)
    ]


def train(
    model: Any, dialogue: Dialogue, seed: int, steps: int, report: Callable[[int, float], None], by_steps: bool
) -> None:
    """Train the model in place; the loss is over what the walker said, the end of its turn included."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    episodes = demonstrations.demonstrations(seed)
    model.train()
    for step, batch in enumerate(_batches(dialogue, episodes, steps, by_steps), start=1):
        loss = _loss(model, batch, dialogue.tokenizer.pad_token_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        report(step, loss.item())
    model.eval()


def sample_of(dialogue: Dialogue, one: demonstrations.Demonstration) -> Sample:
    """An episode's tokens, exactly as they are when the model plays."""
    end = dialogue.tokenizer.eos_token
    ids = list(dialogue.opening([{"role": "user", "content": one.observations[0]}]))
    said = [False] * len(ids)
    for turn, action in enumerate(one.actions):
        answer = dialogue.tokenizer(f"{action}{end}", add_special_tokens=False)["input_ids"]
        ids += answer
        said += [True] * len(answer)
        if turn + 1 < len(one.observations):
            more = dialogue.continuation({"role": "user", "content": one.observations[turn + 1]}, ids[-1])
            ids += more
            said += [False] * len(more)
    return ids, said


def turns_of(one: demonstrations.Demonstration) -> Iterator[demonstrations.Demonstration]:
    """Each turn of an episode as one of a single turn."""
    for observation, action in zip(one.observations, one.actions):
        yield demonstrations.Demonstration((observation,), (action,), one.is_success)


def _batches(
    dialogue: Dialogue, episodes: Iterator[demonstrations.Demonstration], steps: int, by_steps: bool
) -> Iterator[list[Sample]]:
    for _ in range(steps):
        batch = list(islice(episodes, BATCH))
        if by_steps:
            batch = [turn for one in batch for turn in turns_of(one)]
        yield [sample_of(dialogue, one) for one in batch]


def _rate(step: int, steps: int) -> float:
    """Share of the peak rate: linear warm-up, then a line down to a tenth."""
    if step < _WARM_UP:
        return (step + 1) / _WARM_UP
    return 1.0 - 0.9 * (step - _WARM_UP) / max(1, steps - _WARM_UP)


def _loss(model: Any, batch: Sequence[Sample], pad_id: int) -> torch.Tensor:
    import torch

    width = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), width), pad_id)
    labels = torch.full((len(batch), width), -100)
    for row, (tokens, said) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, : len(tokens)] = torch.where(torch.tensor(said), torch.tensor(tokens), -100)
    # Rows are padded on the right, where causal attention cannot see the padding: no mask is needed.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    is_said = targets != -100
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[is_said]), targets[is_said])


def show_progress(steps: int) -> Callable[[int, float], None]:
    """A `report` for `prepare`: a line per hundred steps."""
    begin = time.monotonic()

    def report(step: int, loss: float) -> None:
        if step % 100 == 0 or step == steps:
            print(f"warm start: step {step}/{steps}, loss {loss:.3f}, {time.monotonic() - begin:.0f} s", flush=True)

    return report


def main() -> None:
    """Make the model and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the warm start")
    parser.add_argument("--by-steps", action="store_true", help="for runs with env_manager_cls=step")
    given = parser.parse_args()
    report = show_progress(given.steps)
    print(f"model {prepare(given.folder, given.seed, given.steps, report, given.by_steps)}")


if __name__ == "__main__":
    main()
