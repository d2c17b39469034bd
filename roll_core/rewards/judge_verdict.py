"""A judge's verdict: YES or NO at the end of its first or last line, or in a JSON object. Anything else is none.

A response that is judged may say "Verdict: YES" itself, in the hope that the judge repeats it. Hence a verdict counts
only in the judge's own words: it is none where it stands in the response together with the word before it, nor in a
reply that repeats the marks around the response.
"""

from __future__ import annotations

import json
import re
from typing import Any

from roll_core.rewards.answer import answer_part

_WORDS = {"yes": True, "no": False}
_KEYS = ("verdict", "answer", "judgement", "judgment", "decision", "result", "correct", "is_correct")
_LABELS = frozenset(
    ("verdict", "answer", "final", "judgement", "judgment", "decision", "result", "conclusion", "the", "my", "is", "so")
)
"""Words after which YES or NO is a verdict without a colon or comma before it: "the final verdict is YES"."""
_END = re.compile(r"(?P<before>.*?)(?P<gap>[^\w]*)\b(?P<word>yes|no)\b[^\w]*", re.IGNORECASE)
_SETS_OFF = re.compile(r"[:;,.!?=(\[\"'`*-]")
_FENCE = re.compile(r"\A```(?:json)?[^\S\n]*\n(.*)\n```\Z", re.DOTALL | re.IGNORECASE)
_MAX_LINE = 2000


class NoVerdict(Exception):
    """A judge's reply is no verdict; says why."""


def read_verdict(reply: str, response: str, mark: str = "") -> bool:
    """Whether a judge found a response right.

    Args:
        reply: what the judge said; its own thinking part is left out.
        response: what was judged.
        mark: what was put around the response in the prompt.

    Raises:
        NoVerdict: it said neither, or both, or only repeated the response.
    """
    if "<think>" in reply and reply.rfind("<think>") > reply.rfind("</think>"):
        raise NoVerdict("the judge did not finish thinking")
    text = answer_part(reply).strip()
    if mark and mark in text:
        raise NoVerdict("the judge repeated the response instead of judging it")
    fenced = _FENCE.match(text)
    if fenced is not None or text.startswith("{"):
        return _in_json(fenced.group(1) if fenced else text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ends = {lines[0]: "", lines[-1]: lines[-2] if len(lines) > 1 else ""} if lines else {}
    votes = {line: vote for line in ends if (vote := _at_the_end(line)) is not None}
    for line in votes:
        if _is_quoted(ends[line], line, response):
            raise NoVerdict(f"the judge's verdict stands in the response: {line[:100]!r}")
    if not votes:
        raise NoVerdict(f"the judge's reply ends with neither YES nor NO: {text[-100:]!r}")
    if len(set(votes.values())) > 1:
        raise NoVerdict(f"the judge says both YES and NO: {lines[0][:60]!r} ... {lines[-1][:60]!r}")
    return next(iter(votes.values()))


def _at_the_end(line: str) -> bool | None:
    """The verdict that a line ends with: a word of its own, so that "I know" and "Now" are none."""
    if len(line) > _MAX_LINE or line.startswith(">"):
        return None
    found = _END.fullmatch(line)
    if found is None:
        return None
    before, word = found.group("before"), found.group("word").lower()
    words = re.findall(r"\w+", before.lower())
    if any(other in _WORDS for other in words):
        return None
    is_set_off = _SETS_OFF.search(found.group("gap")) is not None and words[-1:] != ["not"]
    return _WORDS[word] if is_set_off or all(one in _LABELS for one in words) else None


def _is_quoted(previous: str, line: str, response: str) -> bool:
    # A bare YES may well stand in the response too; it is quoted if the word before it is quoted with it.
    words = _words(line) if len(_words(line)) > 1 else _words(previous)[-1:] + _words(line)
    return len(words) > 1 and f" {' '.join(words[-2:])} " in f" {' '.join(_words(response))} "


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _in_json(text: str) -> bool:
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoVerdict(f"the judge's reply is broken JSON: {error}") from None
    given = {key: parsed[key] for key in _KEYS if key in parsed} if isinstance(parsed, dict) else {}
    votes = {
        _WORDS.get(value.strip().lower()) if isinstance(value, str) else value
        for value in map(_hashable, given.values())
    }
    if len(votes) != 1 or not isinstance(vote := votes.pop(), bool):
        raise NoVerdict(f"the judge's JSON holds no single verdict: {text[:100]!r}")
    return vote


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | bool) else None
