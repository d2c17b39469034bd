"""The 25 functions that `ground_truth` names in ROLL's data for `ifeval`: {"func_name": ..., and its arguments}.

Each counts exactly where the published instruction has a relation, unless a `quantifier` is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from roll_core.rewards.instructions import checkers as check
from roll_core.rewards.instructions.language import is_in_language
from roll_core.rewards.instructions.published import Checker
from roll_core.rewards.instructions.relations import Arguments, holds
from roll_core.rewards.instructions.text import count_sentences, count_words, starred_paragraphs


def _exactly(count: Callable[[str], int]) -> Checker:
    return lambda text, given: count(text) == given.number("N")


def _quantified(count: Callable[[str], int]) -> Checker:
    def checker(text: str, given: Arguments) -> bool:
        number = given.number("N")
        return holds(count(text), given.relation("quantifier", "exactly"), number)

    return checker


def _keyword_frequency(text: str, given: Arguments) -> bool:
    return check.word_occurrences(text, given.text("word")) == given.number("N")


def _letter_frequency(text: str, given: Arguments) -> bool:
    return check.letter_count(text, given.text("letter")) == given.number("N")


def _paragraphs(text: str, given: Arguments) -> bool:
    wanted, found = given.number("N"), starred_paragraphs(text)
    return found is not None and len(found) == wanted


def _first_word(text: str, given: Arguments) -> bool:
    total, number = given.number("N"), given.number("i")
    return check.starts_paragraph_with(text, total, number, given.text("first_word"))


def _choice(text: str, given: Arguments) -> bool:
    """Exactly one of the options: naming all of them is no choice."""
    return len(check.choices_in(text, _options(given))) == 1


def _options(given: Arguments) -> list[str]:
    value = given.value("options")
    if not isinstance(value, str):
        return given.texts("options")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if isinstance(parsed, list):
        return Arguments(given.name, {"options": parsed}).texts("options")
    # Data sets also write them as "(yes / no / maybe)" or "yes, no, maybe".
    separator = next((mark for mark in ("/", "|", ";", "\n", ",") if mark in value), "\n")
    pieces = (re.sub(r"^[\s(\[]+|[\s)\]]+$", "", piece) for piece in value.split(separator))
    return [piece for piece in pieces if piece] or given.texts("options")


def _sections(text: str, given: Arguments) -> bool:
    wanted = given.number("N")
    return check.section_count(text, given.text("section_splitter")) == wanted


def _sentences(text: str, given: Arguments) -> bool:
    number, relation = given.number("N"), given.relation("quantifier", "exactly")
    count = count_sentences(text)
    return abs(count - number) <= 1 if relation == "around" else holds(count, relation, number)


GUIDE: Mapping[str, Checker] = {
    "verify_keywords": lambda text, given: all(
        check.occurrences(text, keyword) > 0 for keyword in given.texts("keyword_list")
    ),
    "verify_keyword_frequency": _keyword_frequency,
    "validate_forbidden_words": lambda text, given: (
        not any(check.word_occurrences(text, word) for word in given.texts("forbidden_words"))
    ),
    "verify_letter_frequency": _letter_frequency,
    "validate_response_language": lambda text, given: is_in_language(text, given.text("language")),
    "verify_paragraph_count": _paragraphs,
    "validate_word_constraint": _quantified(count_words),
    "verify_sentence_constraint": _sentences,
    "validate_paragraphs": _first_word,
    "verify_postscript": lambda text, given: check.has_postscript(text, given.text("postscript_marker")),
    "validate_placeholders": lambda text, given: check.placeholder_count(text) >= given.number("N"),
    "verify_bullet_points": _exactly(check.bullet_count),
    "validate_title": lambda text, given: check.has_title(text),
    "validate_choice": _choice,
    "validate_highlighted_sections": lambda text, given: check.highlight_count(text) >= given.number("N"),
    "validate_sections": _sections,
    "validate_json_format": lambda text, given: check.is_json(text),
    "validate_repeat_prompt": lambda text, given: check.repeats(text, given.text("original_prompt")),
    "validate_two_responses": lambda text, given: check.are_two_responses(text),
    "validate_uppercase": lambda text, given: check.is_all_capitals(text),
    "validate_lowercase": lambda text, given: check.is_all_lowercase(text),
    "validate_frequency_capital_words": _quantified(check.capital_word_count),
    "validate_end": lambda text, given: check.ends_with(text, given.text("end_phrase")),
    "validate_quotation": lambda text, given: check.is_quoted(text),
    "validate_no_commas": lambda text, given: "," not in text,
}
"""Checkers by function name."""
