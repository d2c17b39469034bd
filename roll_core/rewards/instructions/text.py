"""Words, sentences and paragraphs of a text, by rules that need no downloaded data.

They are chosen so that people agree with them, and follow the published checker where it does the same. A sentence
ends at `.`, `!`, `?` or their East Asian forms, with quotes and brackets that follow, before white space or the end;
or at a blank line. It does not end after an abbreviation, an initial, or the number of a list item, nor inside
a quotation after which it goes on in small letters.
Everything here takes time in proportion to the text's length, whatever the text.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:['\u2019.-]\w+)*")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# A run of stops is tried once, from its start: else a long run would take the square of its length.
_STOP = re.compile(r"(?P<wide>[\u3002\uff01\uff1f]+)|(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]*_]*+(?=\s|$)")
_NEXT = re.compile(r"\s*+(\S)")
_QUOTES = "\"'\u201d\u2019"
_ABBREVIATIONS = frozenset(
    (
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "sr",
        "jr",
        "st",
        "vs",
        "etc",
        "e.g",
        "i.e",
        "cf",
        "fig",
        "vol",
        "inc",
        "ltd",
        "co",
        "corp",
        "dept",
        "approx",
        "a.m",
        "p.m",
        "u.s",
        "u.k",
    )
)
_OPEN_ENDED = frozenset(("etc", "a.m", "p.m", "u.s", "u.k", "inc", "ltd", "co", "corp", "jr", "sr"))
"""Abbreviations that also stand at the end of sentences: what follows decides."""


def count_words(text: str) -> int:
    """Runs of letters, digits and underscores, which is what the published checker counts."""
    return sum(1 for _ in _WORD.finditer(text))


def words(text: str) -> list[str]:
    """Words as people see them: "don't" and "e-mail" are one each."""
    return _TOKEN.findall(text)


def count_sentences(text: str) -> int:
    """Sentences that hold at least one letter or digit."""
    return sum(_count_in_block(block) for block in _BLANK_LINE.split(text))


def _count_in_block(block: str) -> int:
    count, start = 0, 0
    for stop in _STOP.finditer(block):
        if stop.group() == "." and not _ends_sentence(block, start, stop):
            continue
        if stop.group()[-1] in _QUOTES and _goes_on(block, stop.end()):
            continue
        count += _has_content(block, start, stop.end())
        start = stop.end()
    return count + _has_content(block, start, len(block))


def _ends_sentence(block: str, start: int, stop: re.Match[str]) -> bool:
    """Whether a single period ends a sentence; what stands right before it decides, and whether something follows."""
    window = block[max(start, stop.start() - 16) : stop.start()]
    last = window.split()[-1].lstrip("(['\"\u201c*_") if window and not window.isspace() else ""
    after = _NEXT.match(block, stop.end())
    if after is None:
        return True
    if last.lower() in _ABBREVIATIONS:
        return last.lower() in _OPEN_ENDED and not after.group(1).islower()
    if len(last) == 1 and last.isupper() and last != "I":
        return False
    # "1." at the start of a line numbers an item; "in 1999." ends a sentence.
    starts_line = "\n" in window or (stop.start() - start <= 16 and not start)
    return not (starts_line and window.rpartition("\n")[2].strip().isdigit())


def _goes_on(block: str, position: int) -> bool:
    """Whether a sentence goes on after a quotation that ended with a stop of its own."""
    after = _NEXT.match(block, position)
    return after is not None and after.group(1).islower()


def _has_content(text: str, start: int, end: int) -> bool:
    return _WORD.search(text, start, end) is not None


def paragraphs(text: str) -> list[str]:
    """Pieces between blank lines, without the blank ones."""
    return [piece.strip() for piece in _BLANK_LINE.split(text) if piece.strip()]


def starred_paragraphs(text: str) -> list[str] | None:
    """Pieces between dividers of three asterisks (`***`, `* * *`); None where one in the middle is blank."""
    pieces = re.split(r"\* ?\* ?\*", text)
    if any(not piece.strip() for piece in pieces[1:-1]):
        return None
    return [piece for piece in pieces if piece.strip()]


def first_word(paragraph: str) -> str:
    """A paragraph's first word in lower case, without quotes around it and punctuation after it."""
    words_of = paragraph.split(maxsplit=1)
    if not words_of:
        return ""
    word = words_of[0].lstrip("'\"\u201c\u2018*_(#").replace("\u2019", "'")
    return re.split(r"[.,?!\":;\u201d*_)]|'(?!\w)", word, maxsplit=1)[0].lower()
