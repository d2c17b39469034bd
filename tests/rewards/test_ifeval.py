"""Every published instruction and every function of ROLL's guide, with a text that follows it and one that does not."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from roll_core.rewards import RewardSample, Score, Status
from roll_core.rewards.ifeval import IFEvalReward
from roll_core.rewards.instructions.guide import GUIDE
from roll_core.rewards.instructions.language import _identifier
from roll_core.rewards.instructions.published import PUBLISHED

CAPITALS = "THIS ANSWER IS WRITTEN IN CAPITALS FOR THE READER"
SMALL = "this answer is written in small letters for the reader"
FRENCH = "Le comite se reunira de nouveau jeudi pour discuter des resultats de cette enquete."

# Instruction id, its arguments, a text that follows it, a text that does not.
PUBLISHED_CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["sun", "moon"]}, "Sun and moon.", "Sun and stars."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "at least"}, "Sea, sea!", "Sea."),
    ("keywords:frequency", {"keyword": "sea", "frequency": 2, "relation": "less than"}, "Sea.", "Sea, sea!"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "dog"]}, "A concatenation.", "A Cat."),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_relation": "at least", "let_frequency": 4},
        "#a #b #c #d",
        "#a #b #c hhhh",
    ),
    ("keywords:letter_frequency", {"letter": "E", "let_relation": "less than", "let_frequency": 2}, "Eh.", "Eel."),
    ("language:response_language", {"language": "fr"}, FRENCH, "The weather is fine today, and we will go out."),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "One. Two!", "Dr. No left."),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "It is 3.5 m.",
        "A. B c. D.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n\n***\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two three", "one two"),
    ("length_constraints:number_words", {"num_words": 10, "relation": "at most"}, "one", "a b c d e f g h i j k"),
    ("length_constraints:number_words", {"num_words": 20, "relation": "around"}, "w " * 18, "w " * 17),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "first"},
        "\n\nFirst, this.\n\nSecond, that.",
        "Second, that.\n\nFirst, this.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] at [address]", "[name] [broken"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. Call me.", "Bye.\nP.S."),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S one more", "Bye.\nP.S. one"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b\n**c**\n---", "* a\n* b\n* c"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "*a* and ** **"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        "SECTION 1\na\nSECTION\nb",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', '{"a": NaN}'),
    ("detectable_format:title", {}, "<<A poem>>\nRoses.", "<< >>\nRoses."),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say hi.\nHi!", "Hi! Say hi."),
    ("copy:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Say hi. Hi!", "Hi!"),
    ("startend:end_checker", {"end_phrase": "That is all."}, 'Well. THAT is all."', "That is all. Bye."),
    ("startend:quotation", {}, '"All of it."', '"Some" of it.'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "A NEW one",
        "A 42",
    ),
    ("change_case:english_capital", {}, CAPITALS, CAPITALS.title()),
    ("change_case:english_lowercase", {}, SMALL, "42"),
    ("punctuation:no_comma", {}, "No pause.", "Well, a pause."),
]

GUIDE_CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("verify_keywords", {"keyword_list": ["sun"]}, "The Sun.", "The moon."),
    ("verify_keyword_frequency", {"word": "sea", "N": 2}, "Sea and sea in season.", "sea sand sun salt"),
    ("validate_forbidden_words", {"forbidden_words": ["cat"]}, "Concatenate.", "The cat."),
    ("verify_letter_frequency", {"letter": "#", "N": 2}, "# and #", "# and # and #"),
    ("validate_response_language", {"language": "ja"}, "\u4eca\u65e5\u306f\u826f\u3044", "\u4eca\u5929\u5929\u6c14"),
    ("verify_paragraph_count", {"N": 2}, "a\n* * *\nb", "a\n* * *\nb\n* * *\nc"),
    ("validate_word_constraint", {"N": 3, "quantifier": "at most"}, "a b c", "a b c d"),
    ("verify_sentence_constraint", {"N": 3, "quantifier": "around"}, "Yes it is. It was.", "It is."),
    ("validate_paragraphs", {"N": 2, "first_word": "then", "i": 2}, "Now.\n\nThen more.", "Then.\n\nNow."),
    ("verify_postscript", {"postscript_marker": "P.S."}, "Bye. P.S. Call.", "Bye."),
    ("validate_placeholders", {"N": 1}, "Dear [name]", "Dear name"),
    ("verify_bullet_points", {"N": 2}, "- a\n* b", "- a"),
    ("validate_title", {}, "<<T>> text", "<T> text"),
    ("validate_choice", {"options": ["yes", "no", "not sure"]}, "I am not sure.", "yes or no or not sure"),
    ("validate_choice", {"options": "(yes / no)"}, "yes", "maybe"),
    ("validate_highlighted_sections", {"N": 1}, "a *b* c", "a b c"),
    ("validate_sections", {"N": 2, "section_splitter": "Part"}, "Hello.\nPart 1 a\nPart 2 b", "Part 1 a"),
    ("validate_json_format", {}, "[1, 2]", "[1, 2] there"),
    ("validate_repeat_prompt", {"original_prompt": "Why?"}, "Why? Because.", "Because."),
    ("validate_two_responses", {}, "a ****** b", "a b"),
    ("validate_uppercase", {}, "ALL OF IT!", "All Of It!"),
    ("validate_lowercase", {}, "all of it!", "All of it!"),
    ("validate_frequency_capital_words", {"N": 1, "quantifier": "at most"}, "ONE word", "TWO WORDS"),
    ("validate_end", {"end_phrase": "the end"}, "It is The End", "the end of it"),
    ("validate_quotation", {}, '"So"', '"'),
    ("validate_no_commas", {}, "a b", "a, b"),
]


# Texts that only look as if they followed, and texts that follow in another spelling.
TRICKY: list[tuple[str, dict[str, Any], str, bool]] = [
    ("startend:quotation", {}, '"He said "no" to me."', True),
    ("startend:quotation", {}, '"Almost".', False),
    ("startend:quotation", {}, '""', False),
    ("startend:end_checker", {"end_phrase": "done"}, "It is undone", False),
    ("startend:end_checker", {"end_phrase": "done"}, "It is done.", False),
    ("startend:end_checker", {"end_phrase": "(done)"}, "It is(Done)", True),
    ("keywords:existence", {"keywords": ["caf\u00e9"]}, "The cafe\u0301.", True),
    ("keywords:existence", {"keywords": ["a.b"]}, "axb", False),
    ("keywords:forbidden_words", {"forbidden_words": ["can't"]}, "I can\u2019t.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "I use C++11.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "I like _rock_.", False),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "I like rocks.", True),
    ("detectable_format:json_format", {}, '\ufeff{"a": 1}', True),
    ("detectable_format:json_format", {}, '```json {"a": 1}```', True),
    ("detectable_format:json_format", {}, '```python\n{"a": 1}\n```', False),
    ("detectable_format:json_format", {}, '{"a": 1}{"b": 2}', False),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*Note*: a list\n* a", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*a", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "\u2022 a\n\u2022 b", False),
    ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", False),
    ("detectable_format:constrained_response", {}, "my answer is yes.", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP.P.S. x", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Maps. x", False),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "don"},
        "Do.\n\nDon't go.",
        False,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "don't"},
        "Do.\n\n\u201cDon\u2019t,\u201d he said.",
        True,
    ),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Hi there"}, "hi   there\nYes.", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Hi there"}, "Hi there", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Hi there"}, "Hi thereby yes", False),
    ("combination:two_responses", {}, "a\n************\nb", False),
    ("length_constraints:number_words", {"num_words": 2, "relation": "less than"}, "don't", False),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "e.g. this one", True),
    ("punctuation:no_comma", {}, "1,000", False),
]


def published(response: str, *instructions: tuple[str, Any], **options: Any) -> Score:
    fields = {"instruction_id_list": [one for one, _ in instructions], "kwargs": [given for _, given in instructions]}
    return IFEvalReward(**options).score(RewardSample("1", "", response, fields=fields))


def guide(response: str, function: str, given: dict[str, Any], **options: Any) -> Score:
    truth = json.dumps({"func_name": function, **given})
    return IFEvalReward(**options).score(RewardSample("1", "", response, truth))


@pytest.mark.parametrize(("name", "given", "follows", "does_not"), PUBLISHED_CASES)
def test_a_published_instruction_tells_texts_apart(
    name: str, given: dict[str, Any], follows: str, does_not: str
) -> None:
    assert published(follows, (name, given)) == Score(1.0)
    assert published(does_not, (name, given)) == Score(0.0, reason=f"not followed: {name}")
    assert published("", (name, given)).score == 0.0 and published("", (name, given)).status is Status.OK


@pytest.mark.parametrize(("name", "given", "follows", "does_not"), GUIDE_CASES)
def test_a_function_of_the_guide_tells_texts_apart(
    name: str, given: dict[str, Any], follows: str, does_not: str
) -> None:
    assert guide(follows, name, given) == Score(1.0)
    assert guide(does_not, name, given) == Score(0.0, reason=f"not followed: {name}")
    # Data files have a column for every argument, null where it is not used.
    assert guide(follows, name, {"N": None, "quantifier": None, "letter": None} | given).score == 1.0


@pytest.mark.parametrize(("name", "given", "text", "is_followed"), TRICKY)
def test_a_text_is_taken_for_what_it_says(name: str, given: dict[str, Any], text: str, is_followed: bool) -> None:
    assert published(text, (name, given)).score == float(is_followed)


def test_every_instruction_is_in_these_tables() -> None:
    assert {name for name, *_ in PUBLISHED_CASES} == set(PUBLISHED)
    assert {name for name, *_ in GUIDE_CASES} == set(GUIDE)
    assert len(PUBLISHED) == 26 and len(GUIDE) == 25


@pytest.mark.parametrize("name", ["keywords:must_include", "", None, 3, "verify_keywords"])
def test_an_unknown_instruction_is_no_verdict(name: Any) -> None:
    score = published("Anything.", ("punctuation:no_comma", {}), (name, {}))
    assert score.status is Status.COULD_NOT_GRADE
    assert score.reason.startswith(f"no instruction id {name!r}; there are: keywords:existence, ")


@pytest.mark.parametrize(
    ("name", "given"),
    [(name, given) for name, given, *_ in PUBLISHED_CASES if given],
)
def test_a_missing_argument_is_no_verdict(name: str, given: dict[str, Any]) -> None:
    for key in given:
        rest = {other: value for other, value in given.items() if other != key} | {key: None}
        for response in ("Some text.", ""):
            score = published(response, (name, rest))
            assert score.status is Status.COULD_NOT_GRADE and repr(key) in score.reason


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        (
            "keywords:letter_frequency",
            {"letter": "ab", "let_relation": "at least", "let_frequency": 1},
            "one character",
        ),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "sort of"}, "no relation 'sort of'"),
        ("detectable_content:number_placeholders", {"num_placeholders": "many"}, "must be a whole number"),
        ("detectable_content:number_placeholders", {"num_placeholders": True}, "must be a whole number"),
        ("detectable_content:number_placeholders", {"num_placeholders": 10**400}, "must be a whole number"),
        ("language:response_language", {"language": "tlh"}, "no language 'tlh' can be told"),
        ("keywords:existence", {"keywords": []}, "list of texts"),
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"},
            "no paragraph 3 of 2",
        ),
    ],
)
def test_arguments_without_sense_are_no_verdict(name: str, given: dict[str, Any], reason: str) -> None:
    score = published("Some text.", (name, given))
    assert score.status is Status.COULD_NOT_GRADE and reason in score.reason


@pytest.mark.parametrize(
    "truth", ["", "none", "[]", "{}", '{"func_name": "nothing"}', '"text"', '{"N": 3}', "[" * 9999]
)
def test_rows_without_an_instruction_are_no_verdict_and_told_before_a_run(truth: str) -> None:
    sample = RewardSample("1", "", "Some text.", truth)
    assert IFEvalReward().score(sample).status is Status.COULD_NOT_GRADE
    assert IFEvalReward().row_problem(sample)


def test_a_row_is_checked_without_a_response() -> None:
    good = [(name, given) for name, given, *_ in PUBLISHED_CASES]
    fields = {"instruction_id_list": [name for name, _ in good], "kwargs": [given for _, given in good]}
    assert IFEvalReward().row_problem(RewardSample("1", "", "", fields=fields)) is None
    as_text = {key: json.dumps(value) for key, value in fields.items()}
    assert IFEvalReward().row_problem(RewardSample("1", "", "", fields=as_text)) is None
    fields["kwargs"][4] = {}
    assert "needs 'let_frequency'" in str(IFEvalReward().row_problem(RewardSample("1", "", "", fields=fields)))


def test_all_instructions_must_be_followed_unless_the_share_is_scored() -> None:
    both = (("punctuation:no_comma", {}), ("startend:quotation", {}))
    assert published('"a, b"', *both).score == 0.0
    assert published('"a b"', *both).score == 1.0
    assert published('"a, b"', *both, reward_type="soft").score == 0.5
    assert published('"a, b"', *both, reward_type="loose", share=True).score == 0.5


def test_loose_leaves_out_first_and_last_lines_and_asterisks() -> None:
    given = ("startend:quotation", {})
    for response in ('Sure:\n"Text."', '"Text."\nBye.', 'Sure:\n"Text."\nBye.', '**"Text."**', 'Sure:\n*"Text."*'):
        assert published(response, given).score == 0.0
        assert published(response, given, reward_type="loose").score == 1.0
    assert published("Text.", given, reward_type="loose").score == 0.0


def test_loose_is_never_less_than_strict() -> None:
    for name, given, follows, _ in PUBLISHED_CASES:
        assert published(follows, (name, given), reward_type="loose").score == 1.0


def test_the_thinking_part_is_left_out_and_one_that_never_ends_is_no_answer() -> None:
    given = ("punctuation:no_comma", {})
    assert published("<think>Well, yes, no.</think>Yes.", given).score == 1.0
    assert published("Well, yes.</think>Yes.", given).score == 1.0
    assert published("<think>Well yes", given).score == 0.0


def test_the_same_answer_always_gets_the_same_score() -> None:
    given = [("language:response_language", {"language": "es"}), ("change_case:english_capital", {})]
    found = {published("Otra vez el mismo texto corto", one).score for one in given for _ in range(100)}
    assert found == {0.0, 1.0}


def test_this_install_can_tell_languages_and_says_what_is_missing_where_it_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert IFEvalReward.self_test() == []
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)

    _identifier.cache_clear()
    first, second = IFEvalReward.self_test()
    assert first.startswith("ifeval tells languages with py3langid, which cannot be imported")
    assert second == "try: pip install 'roll-core[ifeval]'"


@pytest.mark.parametrize(
    ("text", "code", "is_followed"),
    [
        ("This is a fine day and we walk.", "en", True),
        ("This is a fine day and we walk.", "de", False),
        ("Das ist gut.", "de", True),
        ("Das ist gut.", "it", False),
        ("Merci!", "fr", True),
        ("Hola mundo", "es", True),
        ("La respuesta es sí.", "fr", False),
        ("OK", "de", True),
    ],
)
def test_a_short_text_is_in_each_language_it_may_well_be_in(text: str, code: str, is_followed: bool) -> None:
    fields = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": code}]}
    score = IFEvalReward().score(RewardSample("a", "", text, "", "ifeval", fields))
    assert score == Score(float(is_followed), reason="" if is_followed else "not followed: language:response_language")


def test_an_instruction_given_twice_with_the_same_arguments_is_a_problem_of_its_row() -> None:
    def problem(*kwargs: dict[str, Any]) -> str | None:
        fields = {"instruction_id_list": ["keywords:existence"] * len(kwargs), "kwargs": list(kwargs)}
        return IFEvalReward().row_problem(RewardSample("a", "", "", "", "ifeval", fields))

    assert problem({"keywords": ["sun"]}, {"keywords": ["moon"]}) is None
    assert problem({"keywords": ["sun"]}, {"keywords": ["sun"], "num_words": None}) == (
        "instruction_id_list names keywords:existence twice with the same arguments"
    )
