"""The task: add two three-digit numbers column by column, shown by a student who mostly forgets the carry.

The demonstrations hold every fact that is needed (one-digit sums, adding one, copying), in both habits: with the
carry (`4+8=12+1=13`) and without it (`4+8=12`). What they teach wrongly is only which habit to follow.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product

SYSTEM = "You are a math assistant."
HELD_OUT = 256
TRAINING_ROWS = 4000
FORGET = 0.75
"""How often the student forgets a carry that is due."""

_PAIRS = 20_000
_NUMBERS = re.compile(r"(\d+) \+ (\d+)")
_BOX = re.compile(r"\\boxed\{(-?\d+)\}")

Pair = tuple[int, int]


def pairs() -> tuple[list[Pair], list[Pair]]:
    """Problems to train on and problems held out. They are the same for every seed, and no problem is in both."""
    numbers = random.Random(2024)
    found: dict[Pair, None] = {}
    while len(found) < _PAIRS:
        found[(numbers.randint(100, 999), numbers.randint(100, 999))] = None
    shuffled = list(found)
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]


def messages(pair: Pair) -> list[dict[str, str]]:
    """The dialogue that asks for a sum."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(pair)}]


def question(pair: Pair) -> str:
    """The text of the question."""
    return f"What is {pair[0]} + {pair[1]}?"


def row(number: int, pair: Pair) -> dict[str, str]:
    """A row of a data file, in the documented format."""
    return {
        "id": f"add-{number}",
        "source": "addition",
        "prompt": question(pair),
        "messages": json.dumps(messages(pair)),
        "ground_truth": str(sum(pair)),
        "tag": "math_rule",
    }


def demonstration(pair: Pair, choice: random.Random, forget: float = FORGET) -> str:
    """An answer as the student writes it. Each due carry is forgotten with probability `forget`."""
    lines, answer, carry = [], "", 0
    for place in range(3):
        left, right = _digit(pair[0], place), _digit(pair[1], place)
        total = left + right
        line = f"{left}+{right}={total}"
        if carry and choice.random() >= forget:
            total += 1
            line += f"+1={total}"
        lines.append(line)
        carry = total // 10
        answer = (str(total) if place == 2 else str(total % 10)) + answer
    return "\n".join(lines) + f"\n\\boxed{{{answer}}}"


def kind_of_answer(prompt: str, response: str) -> str:
    """'right', 'carry forgot' (some carries left out, everything else right) or 'other'.

    Args:
        prompt: any text with the question in it.
    """
    numbers = _NUMBERS.search(prompt)
    boxes = _BOX.findall(response)
    if numbers is None:
        raise ValueError(f"no sum is asked for in: {prompt!r}")
    pair = (int(numbers[1]), int(numbers[2]))
    if not boxes:
        return "other"
    if int(boxes[-1]) == sum(pair):
        return "right"
    return "carry forgot" if int(boxes[-1]) in _forgetful_sums(pair) else "other"


def errors_by_kind(rows: Iterable[Mapping[str, str]]) -> Counter[str]:
    """How many answers are of each kind; every row has `prompt` and `response`."""
    return Counter(kind_of_answer(row["prompt"], row["response"]) for row in rows)


def _digit(number: int, place: int) -> int:
    return number // 10**place % 10


def _forgetful_sums(pair: Pair) -> set[int]:
    """What comes out when any of the carries into the tens and the hundreds are forgotten."""
    sums = set()
    for keep_tens, keep_hundreds in product((0, 1), repeat=2):
        units = _digit(pair[0], 0) + _digit(pair[1], 0)
        tens = _digit(pair[0], 1) + _digit(pair[1], 1) + (units // 10) * keep_tens
        hundreds = _digit(pair[0], 2) + _digit(pair[1], 2) + (tens // 10) * keep_hundreds
        sums.add(hundreds * 100 + tens % 10 * 10 + units % 10)
    return sums
