"""The program in a response, by one rule: the last fenced block of the answer, after any thinking.

Blocks whose fence names a programming language come first: what follows the program without one is mostly what it
prints, or how it is called. A block that is not closed counts to the end. Where there is no fence, the whole answer is
the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n`]*$", re.MULTILINE)
_SOLUTION = "<|begin_of_solution|>"
_SOLUTION_END = "<|end_of_solution|>"
_THOUGHT_END = "</think>"
_PROSE = {"text", "txt", "output", "plaintext", "console", "json", "markdown", "md"}
_SHELL = {"bash", "sh", "shell", "zsh", "powershell"}
"""Blocks of these are no programs, where there are others: they say how to start one."""


@dataclass(frozen=True)
class Block:
    """A program and the language its fence names, in lower case; "" where it names none."""

    text: str
    language: str


def find_program(response: str) -> Block | None:
    """The program, or None where the answer is empty."""
    answer = response.rpartition(_SOLUTION)[2].partition(_SOLUTION_END)[0].rpartition(_THOUGHT_END)[2]
    blocks = list(_blocks(answer))
    if blocks:
        likeliest = max(map(_likeliness, blocks))
        program = [block for block in blocks if _likeliness(block) == likeliest][-1]
        return program if program.text.strip() else None
    return Block(answer, "") if answer.strip() else None


def _likeliness(block: Block) -> int:
    if block.language in _PROSE:
        return 0
    if block.language in _SHELL:
        return 1
    return 3 if block.language else 2


def _blocks(text: str) -> list[Block]:
    found: list[Block] = []
    start, fence, language = 0, "", ""
    for match in _FENCE.finditer(text):
        if not fence:
            start, fence, language = match.end() + 1, match[1], match[2].lower()
        elif match[1].startswith(fence) and not match[2]:
            found.append(Block(_dedented(text[start : match.start()]), language))
            fence = ""
    if fence:
        found.append(Block(_dedented(text[start:]), language))
    return found


def _dedented(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)
    return "\n".join(line[margin:] if line.strip() else "" for line in text.splitlines()) + "\n" if margin else text
