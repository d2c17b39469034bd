"""What the agentic examples begin with: a tiny model that copied the episodes of somebody who knows how, and lapses.

An example says what is shown (`Demonstration`s without end, by seed) and where the model goes; here the model is made,
trained on the tokens that it will see when it plays, and kept if it is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kept_files
import lessons
import tiny_model

if TYPE_CHECKING:
    from roll_core.rollout.env_dialogue import Dialogue

STEPS = 400
BATCH = 32
PEAK_RATE = 5e-3
WARM_UP = 20


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
    report: lessons.Report = lessons.silence,
    by_steps: bool = False,
) -> Path:
    """The model's folder; made unless it is there already, made with the same settings.

    Args:
        model: where weights and tokenizer go, as transformers saves them; a manifest is written beside it.
        settings: what else decides how the model comes out.
        shown: episodes without end, the same for the same seed.
        seed: decides the model's first weights and the episodes.
        by_steps: show the model single turns, as it sees them where each step is a row, in place of whole episodes.
    """
    kept_files.make_once(
        model.parent,
        [model.name],
        {**settings, "seed": seed, "steps": steps},
        lambda place: _make(place / model.name, shown, seed, steps, report, by_steps),
        manifest=f"{model.name}.json",
    )
    return model


def sample_of(dialogue: Dialogue, one: Demonstration) -> lessons.Sample:
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


def _make(
    folder: Path,
    shown: Callable[[int], Iterator[Demonstration]],
    seed: int,
    steps: int,
    report: lessons.Report,
    by_steps: bool,
) -> None:
    import torch

    from roll_core.rollout.env_dialogue import Dialogue

    lessons.prepare_torch()
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


def _train(
    model: Any, dialogue: Dialogue, batches: Iterator[list[Demonstration]], steps: int, report: lessons.Report
) -> None:
    """Train the model in place; the loss is over the answers, the end of a turn included."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    lessons.train(
        model,
        optimizer,
        lambda step: _rate(step, steps),
        ([sample_of(dialogue, one) for one in batch] for batch in batches),
        lambda samples: lessons.loss_of_answers(model, samples, dialogue.tokenizer.pad_token_id),
        report,
    )


def _rate(step: int, steps: int) -> float:
    """Share of the peak rate: linear warm-up, then a line down to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 1.0 - 0.9 * (step - WARM_UP) / max(1, steps - WARM_UP)
