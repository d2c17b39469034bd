"""Supervised training of the tiny model on the careless student's answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import squares

STEPS = 200
BATCH = 48
_RATE = 2e-3


def train(
    model: Any,
    tokenizer: Any,
    folder: Path,
    seed: int,
    steps: int = STEPS,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train the model in place; the loss is over the tokens of the answers, the end-of-turn token included.

    Images are drawn anew for each step, so that none of them is one to train or test on later.

    Args:
        folder: the model's, with its image processor.
        report: called with the step, counted from 1, and its loss.
    """
    import torch
    from transformers import AutoImageProcessor

    reader = AutoImageProcessor.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    choice = random.Random(seed)
    prompt = _prompt(tokenizer)
    positions = _positions([*prompt, 0], model.config)
    model.train()
    for step in range(1, steps + 1):
        problems = [squares.Square(choice.choice(list(squares.COLOURS)), choice.getrandbits(40)) for _ in range(BATCH)]
        images = reader(images=[problem.draw() for problem in problems], return_tensors="pt")
        words = [
            tokenizer.encode(squares.demonstration(problem, choice), add_special_tokens=False) for problem in problems
        ]
        assert all(len(word) == 1 for word in words), "the name of a colour is one token"
        answers = torch.tensor([[word[0], tokenizer.eos_token_id] for word in words])
        ids = torch.cat([torch.tensor(prompt).expand(BATCH, -1), answers[:, :1]], dim=1)
        logits = model(
            input_ids=ids, position_ids=positions.expand(3, BATCH, -1), use_cache=False, logits_to_keep=2, **images
        ).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        report(step, loss.item())
    model.eval()


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
