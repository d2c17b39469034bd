"""What each instruction asks of a text: pure functions of the text and what was asked.

Every one takes time in proportion to the text's length: no pattern here can start at each of many places and read on
to the end of the text from each.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence

from roll_core.rewards.instructions.language import is_in_language
from roll_core.rewards.instructions.relations import BadInstruction
from roll_core.rewards.instructions.text import first_word, paragraphs, words

_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
_FENCE = re.compile(r"\A```(?:json)?(?![A-Za-z])(.*)```\Z", re.DOTALL | re.IGNORECASE)
# A line that begins with *emphasis* is no bullet.
_EMPHASIS = re.compile(r"\*[^\s*](?:[^*]*[^\s*])?\*")
RESPONSE_DIVIDER = "******"


def occurrences(text: str, keyword: str) -> int:
    """How often a keyword stands in a text, in any case, also inside words: as published."""
    return sum(1 for _ in re.finditer(re.escape(_spelled(keyword)), _spelled(text), re.IGNORECASE))


def word_occurrences(text: str, word: str) -> int:
    """How often a word stands in a text as a whole word, in any case. `_word_` is emphasis; C++ is in C++11."""
    return sum(1 for _ in re.finditer(_whole(_spelled(word)), _spelled(text), re.IGNORECASE))


def _whole(word: str) -> str:
    before = r"(?<![^\W_])" if word[0].isalnum() else ""
    after = r"(?![^\W_])" if word[-1].isalnum() else ""
    return before + re.escape(word) + after


def _spelled(text: str) -> str:
    """A text with one spelling of what looks the same: accents joined to their letters, straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("\u2019", "'")


def letter_count(text: str, letter: str) -> int:
    """How often a character stands in a text, in either case. Any character: `#` counts `#`."""
    if len(letter.strip()) != 1:
        raise BadInstruction(f"a letter must be one character, found {letter!r:.100}")
    return text.lower().count(letter.strip().lower())


def starts_paragraph_with(text: str, total: int, number: int, word: str) -> bool:
    """Whether there are `total` paragraphs, and the one with this number (from 1) begins with a word.

    Blank lines before the first paragraph count as nothing.
    """
    if not 1 <= number <= total:
        raise BadInstruction(f"there is no paragraph {number} of {total}")
    found = paragraphs(text)
    return len(found) == total and first_word(found[number - 1]) == first_word(word)


def placeholder_count(text: str) -> int:
    """Placeholders such as [address]."""
    return sum(1 for _ in _PLACEHOLDER.finditer(text))


def has_postscript(text: str, marker: str) -> bool:
    """Whether a postscript with something in it follows its marker. `P.S.` and `P.P.S` may have spaces inside."""
    letters = [letter for letter in marker.strip().lower() if letter.isalpha()]
    if "".join(letters) in ("ps", "pps"):
        # Up to one space between the letters, and a period after all but the last.
        # P.P.S. is another postscript than P.S.
        pattern = r"(?<![a-z])(?<!p\.)(?<!p\.\s)" + r"\.\s?".join(letters) + r"(?![a-z])\.?"
    else:
        pattern = re.escape(marker.strip().lower())
    found = re.search(pattern, text.lower())
    return found is not None and re.search(r"\w", text.lower()[found.end() :]) is not None


def bullet_count(text: str) -> int:
    """Lines that begin with `*` or `-` and say something. Lines that begin with emphasis, or of dashes, are none."""
    lines = (line.strip() for line in text.splitlines())
    return sum(
        (line.startswith("*") and not line.startswith("**") and not _EMPHASIS.match(line)) or line.startswith("-")
        for line in lines
        if line.strip("-* \t")
    )


def choices_in(text: str, options: Sequence[str]) -> set[str]:
    """The options that a text holds, without those that only stand inside a longer one that it holds."""
    rest, found = text, set()
    for option in sorted(set(options), key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(option)}(?!\w)"
        if re.search(pattern, rest):
            found.add(option)
            rest = re.sub(pattern, "\n", rest)
    return found


def highlight_count(text: str) -> int:
    """Parts in *single* or **double** asterisks that hold something."""
    single = sum(bool(one.group(1).strip()) for one in _HIGHLIGHT.finditer(text))
    return single + sum(bool(one.group(1).strip()) for one in _DOUBLE_HIGHLIGHT.finditer(text))


def section_count(text: str, splitter: str) -> int:
    """Sections that begin with the splitter and a number: "SECTION 1"."""
    return sum(1 for _ in re.finditer(rf"{re.escape(splitter.strip())}\s?\d+", text))


def is_json(text: str) -> bool:
    """Whether a text is JSON and nothing else; it may stand in a code fence."""
    text = text.strip().removeprefix("\ufeff")
    fenced = _FENCE.match(text)
    try:
        json.loads(fenced.group(1) if fenced else text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    # NaN and Infinity are Python's own extension.
    raise ValueError(f"{name} is not JSON")


def has_title(text: str) -> bool:
    """Whether a line holds a title in double angular brackets, <<like this>>."""
    for line in text.splitlines():
        start, end = line.find("<<"), line.rfind(">>")
        if start >= 0 and end > start and line[start:end].strip("<> \t"):
            return True
    return False


def are_two_responses(text: str) -> bool:
    """Whether there are two different responses with six asterisks between them."""
    pieces = text.split(RESPONSE_DIVIDER)
    if any(not piece.strip() for piece in pieces[1:-1]):
        return False
    said = [piece.strip() for piece in pieces if piece.strip()]
    return len(said) == 2 and said[0] != said[1]


def repeats(text: str, prompt: str) -> bool:
    """Whether a text begins with the prompt, word for word in any case, and goes on after it."""
    said, wanted = _plain(text), _plain(prompt)
    rest = said.removeprefix(wanted)
    is_cut = wanted[-1:].isalnum() and rest[:1].isalnum()
    return said.startswith(wanted) and not is_cut and re.search(r"\w", rest) is not None


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def ends_with(text: str, phrase: str) -> bool:
    """Whether a text's last words are a phrase, in any case; the whole may stand in double quotes."""
    said, wanted = (one.strip().strip('"').strip().lower() for one in (text, phrase))
    before = said.removesuffix(wanted)[-1:]
    return said.endswith(wanted) and not (before.isalnum() and wanted[:1].isalnum())


def is_quoted(text: str) -> bool:
    """Whether a text stands in double quotes, with something inside them."""
    text = text.strip()
    return text.startswith('"') and text.endswith('"') and bool(text.strip('" \n\t'))


def is_all_capitals(text: str) -> bool:
    """Whether all letters are capitals, and there are some. Title Case is not."""
    return text.isupper()


def is_all_lowercase(text: str) -> bool:
    """Whether all letters are small, and there are some: "42" is neither in capitals nor in small letters."""
    return text.islower()


def in_english(text: str) -> bool:
    """Whether a text is in English, as the instructions about capitals ask as well."""
    return is_in_language(text, "en")


def capital_word_count(text: str) -> int:
    """Words that are all capitals. Digits alone are no such word."""
    return sum(word.isupper() for word in words(text))
