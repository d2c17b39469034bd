"""Samples as text for a person: the end of the prompt, the response, the score."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

PROMPT_CHARACTERS = 200
RESPONSE_CHARACTERS = 600


@dataclass(frozen=True)
class Sample:
    """One prompt and response, and what the reward made of it."""

    prompt: str
    response: str
    score: float
    tag: str = ""
    ground_truth: str = ""
    reason: str = ""
    is_shortened: bool = False

    def shortened(self) -> Sample:
        """Only what `sample_lines` shows of its texts, which may be long, and on their way to a display."""
        if self.is_shortened:
            return self
        prompt, response = _tail(self.prompt, PROMPT_CHARACTERS), _middle_out(self.response, RESPONSE_CHARACTERS)
        return replace(self, prompt=prompt, response=response, is_shortened=True)


def sample_lines(samples: Sequence[Sample]) -> list[str]:
    """Lines that show some samples. Long text loses its middle; control characters a model wrote are escaped."""
    lines = []
    for number, sample in enumerate(samples, start=1):
        facts = [f"score {sample.score:g}"]
        facts += [sample.tag] if sample.tag else []
        facts += [f"expected {_shown(sample.ground_truth, 80)}"] if sample.ground_truth else []
        facts += [_shown(sample.reason, 120)] if sample.reason else []
        lines.append(f"sample {number} of {len(samples)}: {', '.join(facts)}")
        short = sample.shortened()
        lines += _block("prompt", short.prompt) + _block("response", short.response)
    return lines


def _block(label: str, text: str) -> list[str]:
    shown = [escaped(line) for line in text.split("\n")] if text else ["(empty)"]
    return [f"  {label if index == 0 else '':<8} | {line}" for index, line in enumerate(shown)]


def _tail(text: str, limit: int) -> str:
    return text if len(text) <= limit else "..." + text[-limit:]


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ...({len(text) - 2 * half} characters)... {text[-half:]}"


def _shown(text: str, limit: int) -> str:
    return escaped(_middle_out(text, limit).replace("\n", " "))


def escaped(text: str) -> str:
    """The text without anything a terminal would obey: colours, cursor moves, direction marks."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else character.encode("unicode_escape").decode()
        for character in text
    )
