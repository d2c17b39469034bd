"""The task: an image with one coloured square on a grey ground, and the question which colour it has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = {
    "red": (210, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 70, 210),
    "yellow": (220, 200, 40),
    "purple": (150, 50, 180),
    "white": (240, 240, 240),
}
QUESTION = "What colour is the square?"
SIDE = 28
"""Pixels of an image in either direction: four image tokens for the tiny model."""
LOOKS = 0.25
"""How often the student of the warm start looks at the image; else it guesses."""


@dataclass(frozen=True)
class Square:
    """One problem: a square of a colour somewhere on the ground. `seed` decides where, how large, and its shade."""

    colour: str
    seed: int

    def draw(self, blank: bool = False) -> Image:
        """The image; blank, it is nothing but the ground."""
        import numpy as np
        from PIL import Image

        noise = np.random.default_rng(self.seed)
        pixels = noise.normal(110, 12, (SIDE, SIDE, 3))
        size = int(noise.integers(9, 15))
        top, left = noise.integers(0, SIDE - size, 2)
        shade = np.array(COLOURS[self.colour]) + noise.normal(0, 14, 3)
        if not blank:
            pixels[top : top + size, left : left + size] = shade
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def squares(number: int, seed: int) -> Iterator[Square]:
    """Problems of all colours in turn; no two of them, nor of another seed, have the same image."""
    names = list(COLOURS)
    for index in range(number):
        yield Square(names[index % len(names)], seed * 1_000_000 + index)


def row(square: Square, image: str) -> dict[str, Any]:
    """A line of a data file; `image` is the path of the drawn image, as seen from the file."""
    return {
        "id": f"square-{square.seed}",
        "messages": [{"role": "user", "content": f"<image>{QUESTION}"}],
        "image": image,
        "ground_truth": square.colour,
        "tag": "squares",
    }


def demonstration(square: Square, choice: random.Random) -> str:
    """A careless student's answer: right where it looked, else any colour."""
    return square.colour if choice.random() < LOOKS else choice.choice(list(COLOURS))


def write_image(square: Square, path: Path, blank: bool = False) -> None:
    """Draw an image into a PNG file."""
    square.draw(blank).save(path, "PNG")
