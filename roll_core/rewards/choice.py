r"""The option that a response chooses: a letter in a box, after "the answer is", or alone on the last line."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from roll_core.rewards.answer import answer_part, last_boxed

_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf)?|mathrm|mathbf|mathit|mathsf|boldsymbol|bf|rm|left|right|[,;!~ ()\[\]])"
)
_LEAD = re.compile(
    r"(?:the\s{1,4})?(?:correct\s{1,4})?(?:final\s{1,4})?(?:answer|option|choice)(?:\s{1,4}is)?\s{0,4}[:\u2013\u2014-]?\s{0,4}",
    re.I,
)
_PHRASE = re.compile(r"answer\s{1,4}is\s{0,4}:?|answer\s{0,4}:", re.IGNORECASE)
_ALONE = re.compile(r"[(\[]?([A-Za-z])[)\]]?[.:,;!?\u3002]?")
# Emphasis, quotes and characters without width; an apostrophe within a word stays.
_AROUND = re.compile(
    r"[{}$*`\"<>_\u201c\u201d\u200b-\u200d\u2060\ufeff]|(?<![A-Za-z])['\u2018\u2019]|['\u2018\u2019](?![A-Za-z])"
)
# "C: the third", "(C) the third", "C. the third", "C, not D", "A because"; and "C the third", unless the letter is a
# word of its own.
_WITH_TEXT = re.compile(
    r"(?:[(\[]([A-Za-z])[)\]]|([A-Za-z])(?:[):]|\.(?![A-Za-z]\.)|\s?[-\u2013]\s)"
    r"|([A-Z])(?=,?\s(?:not|because|since|as\sit)\s)|([B-HJ-Z])(?=\s))(.{0,400})",
    re.DOTALL,
)
_SEVERAL = re.compile(r"[(\[]?[A-Z][)\]]?(?:\s{0,4}(?:,|;|/|&|and|or|\s)\s{0,4}[(\[]?[A-Z][)\]]?)+(?![a-z])")
_SEVERAL_MARKED = re.compile(r"[(\[]?[a-z][)\].]\s{0,4}(?:,|;|/|&|and|or)\s{0,4}[(\[]?[a-z](?:[)\].]|$)", re.IGNORECASE)
_MAX_CHARACTERS = 500


@dataclass(frozen=True)
class Choice:
    """A chosen option's capital letter, None where no single one was chosen; and whether it was boxed."""

    letter: str | None
    is_boxed: bool


def chosen(response: str) -> Choice:
    """What a response chooses, its thinking part left out.

    A box decides where there is one, also when what it holds is no option.
    """
    text = answer_part(response)
    boxed = last_boxed(text) if "box" in text else None
    if boxed is not None:
        return Choice(letter_of(boxed), True)
    phrases = [phrase.end() for phrase in _PHRASE.finditer(text)]
    if phrases:
        first_line = text[phrases[-1] : phrases[-1] + _MAX_CHARACTERS].strip().partition("\n")[0]
        return Choice(letter_of(first_line), False)
    last_line = text.rstrip()[-_MAX_CHARACTERS:].rpartition("\n")[2]
    return Choice(letter_of(last_line), False)


def letter_of(text: str) -> str | None:
    r"""The capital letter of the option that a short text names, or None.

    Understands `C`, `c`, `(C)`, `C.`, `C: text`, `option C`, `\text{C}`; several letters are no choice.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    plain = _WRAPPER.sub(" ", unicodedata.normalize("NFKC", text))
    plain = " ".join(_AROUND.sub(" ", plain).split())
    plain = _LEAD.sub("", plain, count=1) if _LEAD.match(plain) else plain
    if _SEVERAL.match(plain) or _SEVERAL_MARKED.match(plain):
        return None
    alone = _ALONE.fullmatch(plain)
    if alone is not None:
        return alone.group(1).upper()
    found = _WITH_TEXT.match(plain)
    if found is None:
        return None
    return next(letter for letter in found.groups()[:4] if letter).upper()


def reference_problem(ground_truth: str) -> str | None:
    """What is wrong with a reference that should name an option, as a data check before a run."""
    if not isinstance(ground_truth, str):
        return f"the reference is no text but {type(ground_truth).__name__}"
    if reference_letter(ground_truth) is None:
        return f"the reference must be the letter of an option, found {ground_truth!r:.100}"
    return None


def reference_letter(ground_truth: str) -> str | None:
    """The option that the reference names."""
    boxed = last_boxed(ground_truth) if "box" in ground_truth else None
    return letter_of(ground_truth if boxed is None else boxed)
