"""Supervised training of the tiny model on the careless student's answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lessons
import squares

STEPS = 200
BATCH = 48
_RATE = 2e-3

Batch = tuple[Any, Any]
"""What the image processor makes of images [BATCH], and the answers' tokens [BATCH, 2]: a word, and its end."""


def train(
    model: Any,
    tokenizer: Any,
    folder: Path,
    seed: int,
    steps: int = STEPS,
    report: lessons.Report = lessons.silence,
) -> None:
    """Train the model in place; the loss is over the tokens of the answers, the end-of-turn token included.

    Images are drawn anew for each step, so that none of them is one to train or test on later.

    Args:
        folder: the model's, with its image processor.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    prompt = _prompt(tokenizer)
    positions = _positions([*prompt, 0], model.config).expand(3, BATCH, -1)

    def loss_of(batch: Batch) -> torch.Tensor:
        images, answers = batch
        ids = torch.cat([torch.tensor(prompt).expand(BATCH, -1), answers[:, :1]], dim=1)
        output = model(input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=2, **images)
        return torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), answers.flatten())

    batches = _batches(tokenizer, folder, seed, steps)
    lessons.train(model, optimizer, lambda step: min(1.0, (step + 1) / 20), batches, loss_of, report)


def _batches(tokenizer: Any, folder: Path, seed: int, steps: int) -> Iterator[Batch]:
    import torch
    from transformers import AutoImageProcessor

    reader = AutoImageProcessor.from_pretrained(folder)
    choice = random.Random(seed)
    for _ in range(steps):
        problems = [squares.Square(choice.choice(list(squares.COLOURS)), choice.getrandbits(40)) for _ in range(BATCH)]
        images = reader(images=[problem.draw() for problem in problems], return_tensors="pt")
        words = [
            tokenizer.encode(squares.demonstration(problem, choice), add_special_tokens=False) for problem in problems
        ]
        assert all(len(word) == 1 for word in words), "the name of a colour is one token"
        yield images, torch.tensor([[word[0], tokenizer.eos_token_id] for word in words])


def _prompt(tokenizer: Any) -> list[int]:
    """The question's tokens, with the image's one token as often as an image has cells."""
    content = [{"type": "image"}, {"type": "text", "text": squares.QUESTION}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    cells = (squares.SIDE // 14) ** 2
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [token for each in ids for token in ([image] * cells if each == image else [each])]


def _positions(ids: list[int], config: Any) -> Any:
    """Positions [3, 1, w] of the tokens, as `roll_core` gives them to the model."""
    import torch

    from roll_core.training.vision import positions

    side = squares.SIDE // 7
    return positions(config, torch.tensor([ids]), None, {"image_grid_thw": torch.tensor([[1, side, side]])})
