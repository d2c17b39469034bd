"""The 25 published instruction ids, with the names of their arguments (`instruction_id_list` and `kwargs` columns).

Zhou and others, "Instruction-Following Evaluation for Large Language Models", arXiv 2311.07911. Where its program and
its description disagree, the description is followed: a paragraph's number counts paragraphs that say something, a
missing argument is an error instead of a random draw, and languages are told without chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roll_core.rewards.instructions import checkers as check
from roll_core.rewards.instructions.language import is_in_language
from roll_core.rewards.instructions.relations import Arguments, holds
from roll_core.rewards.instructions.text import count_sentences, count_words, starred_paragraphs

Checker = Callable[[str, Arguments], bool]

CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def _letters(text: str, given: Arguments) -> bool:
    number, relation = given.number("let_frequency"), given.relation("let_relation")
    return holds(check.letter_count(text, given.text("letter")), relation, number)


def _keyword_frequency(text: str, given: Arguments) -> bool:
    number, relation = given.number("frequency"), given.relation("relation")
    return holds(check.occurrences(text, given.text("keyword")), relation, number)


def _starred(text: str, given: Arguments) -> bool:
    wanted, found = given.number("num_paragraphs"), starred_paragraphs(text)
    return found is not None and len(found) == wanted


def _first_word(text: str, given: Arguments) -> bool:
    total, number = given.number("num_paragraphs"), given.number("nth_paragraph")
    return check.starts_paragraph_with(text, total, number, given.text("first_word"))


def _capital_words(text: str, given: Arguments) -> bool:
    number, relation = given.number("capital_frequency"), given.relation("capital_relation")
    return holds(check.capital_word_count(text), relation, number)


def _in_case(is_case: Callable[[str], bool]) -> Checker:
    # The language is looked at second: telling it costs more.
    return lambda text, given: is_case(text) and check.in_english(text)


def _all(texts: Callable[[Arguments], list[str]], present: bool, count: Callable[[str, str], int]) -> Checker:
    return lambda text, given: all((count(text, one) > 0) is present for one in texts(given))


def _repeats(text: str, given: Arguments) -> bool:
    return check.repeats(text, given.text("prompt_to_repeat"))


def _counted(count: Callable[[str], int], number: str, relation: str) -> Checker:
    def checker(text: str, given: Arguments) -> bool:
        wanted = given.number(number)
        return holds(count(text), given.relation(relation), wanted)

    return checker


def _sections(text: str, given: Arguments) -> bool:
    wanted = given.number("num_sections")
    return check.section_count(text, given.text("section_spliter")) >= wanted


PUBLISHED: Mapping[str, Checker] = {
    "keywords:existence": _all(lambda given: given.texts("keywords"), True, check.occurrences),
    "keywords:frequency": _keyword_frequency,
    "keywords:forbidden_words": _all(lambda given: given.texts("forbidden_words"), False, check.word_occurrences),
    "keywords:letter_frequency": _letters,
    "language:response_language": lambda text, given: is_in_language(text, given.text("language")),
    "length_constraints:number_sentences": _counted(count_sentences, "num_sentences", "relation"),
    "length_constraints:number_paragraphs": _starred,
    "length_constraints:number_words": _counted(count_words, "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda text, given: (
        check.placeholder_count(text) >= given.number("num_placeholders")
    ),
    "detectable_content:postscript": lambda text, given: check.has_postscript(text, given.text("postscript_marker")),
    "detectable_format:number_bullet_lists": lambda text, given: (
        check.bullet_count(text) == given.number("num_bullets")
    ),
    "detectable_format:constrained_response": lambda text, given: (
        sum(option in text for option in CONSTRAINED_RESPONSES) == 1
    ),
    "detectable_format:number_highlighted_sections": lambda text, given: (
        check.highlight_count(text) >= given.number("num_highlights")
    ),
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": lambda text, given: check.is_json(text),
    "detectable_format:title": lambda text, given: check.has_title(text),
    "combination:two_responses": lambda text, given: check.are_two_responses(text),
    "combination:repeat_prompt": _repeats,
    "copy:repeat_prompt": _repeats,
    "startend:end_checker": lambda text, given: check.ends_with(text, given.text("end_phrase")),
    "startend:quotation": lambda text, given: check.is_quoted(text),
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _in_case(check.is_all_capitals),
    "change_case:english_lowercase": _in_case(check.is_all_lowercase),
    "punctuation:no_comma": lambda text, given: "," not in text,
}
"""Checkers by published id. `copy:repeat_prompt` is another name that data sets use for the same instruction."""
