"""What the agentic examples begin with: a tiny model that copied the episodes of somebody who knows how, and lapses.

An example says what is shown (`Demonstration`s without end, by seed) and where the model goes; here the model is made,
trained on the tokens that it will see when it plays, and kept if it is there already.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Behind the examples' own folders, which have a prepare.py too.
sys.path.append(str(Path(__file__).parent / "quickstart"))

import tiny_model

if TYPE_CHECKING:
    import torch

    from roll_core.rollout.env_dialogue import Dialogue

STEPS = 400
BATCH = 32
PEAK_RATE = 5e-3
WARM_UP = 20

Sample = tuple[list[int], list[bool]]
"""Token ids of an episode, and which of them are answers."""
Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Demonstration:
    """What was seen and said, turn by turn; `roles` says from whom each observation came, user or tool."""

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    roles: tuple[str, ...]
    is_success: bool

    def turns(self) -> Iterator[Demonstration]:
        """Each turn as an episode of its own."""
        for observation, action in zip(self.observations, self.actions):
            yield Demonstration((observation,), (action,), ("user",), self.is_success)


def prepare(
    model: Path,
    settings: Mapping[str, object],
    shown: Callable[[int], Iterator[Demonstration]],
    *,
    seed: int,
    steps: int = STEPS,
    report: Report = lambda step, loss: None,
    by_steps: bool = False,
) -> Path:
    """The model's folder; made unless it is there already, made with the same settings.

    Args:
        model: where weights and tokenizer go, as transformers saves them; a manifest is written beside it.
        settings: what else decides how the model comes out.
        shown: episodes without end, the same for the same seed.
        seed: decides the model's first weights and the episodes.
        report: called with each step of the training, counted from 1, and its loss.
        by_steps: show the model single turns, as it sees them where each step is a row, in place of whole episodes.
    """
    manifest = model.with_name(f"{model.name}.json")
    settings = {**settings, "seed": seed, "steps": steps}
    settings |= {name: version(name) for name in ("torch", "transformers")}
    if manifest.is_file() and json.loads(manifest.read_text()) == settings and (model / "config.json").is_file():
        return model
    manifest.unlink(missing_ok=True)
    shutil.rmtree(model, ignore_errors=True)
    _make(model, shown, seed, steps, report, by_steps)
    # Written last, so it stands for a whole model only.
    manifest.write_text(json.dumps(settings, indent=2) + "\n")
    return model


def sample_of(dialogue: Dialogue, one: Demonstration) -> Sample:
    """An episode's tokens, exactly as they are when the model plays."""
    end = dialogue.tokenizer.eos_token
    ids = list(dialogue.opening([{"role": "user", "content": one.observations[0]}]))
    said = [False] * len(ids)
    for turn, action in enumerate(one.actions):
        answer = dialogue.tokenizer(f"{action}{end}", add_special_tokens=False)["input_ids"]
        ids += answer
        said += [True] * len(answer)
        if turn + 1 < len(one.observations):
            more = dialogue.continuation({"role": one.roles[turn + 1], "content": one.observations[turn + 1]}, ids[-1])
            ids += more
            said += [False] * len(more)
    return ids, said


def show_progress(steps: int) -> Report:
    """A `report` for `prepare`: a line per hundred steps."""
    begin = time.monotonic()

    def report(step: int, loss: float) -> None:
        if step % 100 == 0 or step == steps:
            print(f"warm start: step {step}/{steps}, loss {loss:.3f}, {time.monotonic() - begin:.0f} s", flush=True)

    return report


def _make(
    folder: Path,
    shown: Callable[[int], Iterator[Demonstration]],
    seed: int,
    steps: int,
    report: Report,
    by_steps: bool,
) -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    from roll_core.rollout.env_dialogue import Dialogue

    disable_progress_bar()
    # One thread: the model is so small that a second one gains little, and loses much on a busy machine.
    torch.set_num_threads(1)
    tokenizer = tiny_model.make_tokenizer(list(_texts(islice(shown(0), 500))))
    torch.manual_seed(seed)
    model = tiny_model.make_model(tokenizer)
    _train(model, Dialogue(tokenizer, "native"), _batches(shown(seed), steps, by_steps), steps, report)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _texts(some: Iterator[Demonstration]) -> Iterator[str]:
    """Texts that the tokenizer learns its words from."""
    for one in some:
        for role, observation, action in zip(one.roles, one.observations, one.actions):
            yield f"system\n{role}\n{observation}\nassistant\n{action}\n"


def _batches(episodes: Iterator[Demonstration], steps: int, by_steps: bool) -> Iterator[list[Demonstration]]:
    for _ in range(steps):
        batch = list(islice(episodes, BATCH))
        yield [turn for one in batch for turn in one.turns()] if by_steps else batch


def _train(model: Any, dialogue: Dialogue, batches: Iterator[list[Demonstration]], steps: int, report: Report) -> None:
    """Train the model in place; the loss is over the answers, the end of a turn included."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    for step, batch in enumerate(batches, start=1):
        samples = [sample_of(dialogue, one) for one in batch]
        loss = _loss(model, samples, dialogue.tokenizer.pad_token_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        report(step, loss.item())
    model.eval()


def _rate(step: int, steps: int) -> float:
    """Share of the peak rate: linear warm-up, then a line down to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 1.0 - 0.9 * (step - WARM_UP) / max(1, steps - WARM_UP)


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
