"""The READMEs in both languages say the same, and what they name is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from roll_ascend import plugin
from roll_ascend.checks import CHECKS
from roll_ascend.env import READ_BY_NOBODY, VARIABLES
from roll_ascend.versions import STACKS

from roll_core.doctor.explain import explain
from roll_core.plugins import load_plugins

FOLDER = Path(__file__).parents[1]
ENGLISH = (FOLDER / "README.md").read_text(encoding="utf-8")
CHINESE = (FOLDER / "README.zh.md").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
FINDINGS_OF_CORE = {"open files", "/dev/shm"}
FACTS, VERSIONS, DEFAULTS, UNREAD, PATCHES, FINDINGS, REFUSED, QUESTIONS = range(8)


def tables(text: str) -> list[list[list[str]]]:
    """Every table as rows of cells, without its heading."""
    found: list[list[list[str]]] = []
    is_inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_inside = False
            continue
        if not is_inside:
            found.append([])
        is_inside = True
        found[-1].append([cell.strip() for cell in line[1:-1].split("|")])
    return [rows[2:] for rows in found]


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def test_both_languages_name_the_same_things_in_every_table() -> None:
    english, chinese = tables(ENGLISH), tables(CHINESE)
    assert len(english) == len(chinese) == 8
    for ours, theirs in zip(english, chinese, strict=True):
        assert [[spans(cell) for cell in row] for row in ours] == [[spans(cell) for cell in row] for row in theirs]


def test_both_languages_have_the_same_headings_and_blocks() -> None:
    headings = [re.findall(r"^#+ ", text, re.MULTILINE) for text in (ENGLISH, CHINESE)]
    assert headings[0] == headings[1]
    blocks = [re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for text in (ENGLISH, CHINESE)]
    plain = [[re.sub(r"\s+#.*", "", block) for block in found] for found in blocks]
    assert plain[0] == plain[1]


def test_the_english_page_is_plain_ascii_but_for_the_link_to_the_other() -> None:
    assert [line for line in ENGLISH.splitlines() if not line.isascii()] == ["[中文](README.zh.md)"]


@BOTH
def test_the_findings_are_those_of_the_checks(text: str) -> None:
    assert [spans(row[0])[0] for row in tables(text)[FINDINGS]] == list(CHECKS)


@BOTH
def test_the_versions_are_those_of_the_matrix(text: str) -> None:
    rows = tables(text)[VERSIONS]
    assert [dict(STACKS[column].versions) for column in range(3)] == [
        {row[0]: row[column + 1] for row in rows if row[column + 1]} for column in range(3)
    ]


@BOTH
def test_the_defaults_are_those_that_workers_get(text: str) -> None:
    empty = {"empty": "", "空": ""}
    told = {}
    for name, training, engines, _why in tables(text)[DEFAULTS]:
        told[spans(name)[0]] = tuple(spans(cell)[0] if spans(cell) else empty.get(cell) for cell in (training, engines))
    assert told == {
        name: (one.training, one.generation)
        for name, one in VARIABLES.items()
        if one.training is not None or one.generation is not None
    }


@BOTH
def test_the_unread_variables_are_those_that_are_warned_of(text: str) -> None:
    rows = tables(text)[UNREAD]
    assert [spans(row[0])[0] for row in rows] == sorted(READ_BY_NOBODY)
    for name, instead in ((spans(row[0])[0], spans(row[1])) for row in rows):
        assert all(option in READ_BY_NOBODY[name] for option in instead)
        assert bool(instead) == bool(READ_BY_NOBODY[name])


@BOTH
def test_the_patches_are_those_that_the_plugin_offers(text: str) -> None:
    assert [spans(row[0])[0] for row in tables(text)[PATCHES]] == [one.name for one in plugin.roll_model_patches()]


def asked() -> list[tuple[str, str, str]]:
    """Each question with each finding or error that answers it."""
    found = []
    for question, answer in tables(ENGLISH)[QUESTIONS]:
        named, _, errors = answer.partition("error `")
        found += [(question, "finding", one) for one in spans(named)]
        found += [(question, "error", one) for one in spans("`" + errors if errors else "")]
    return found


@pytest.mark.parametrize(("question", "kind", "name"), asked())
def test_every_question_is_answered_by_a_finding_or_an_explanation(question: str, kind: str, name: str) -> None:
    if kind == "finding":
        assert name in CHECKS or name in FINDINGS_OF_CORE
        return
    answer = explain(name, load_plugins())
    sources = [one.source for one in answer.explanations]
    assert sources and answer.unasked == ()
    is_general = name in ("Too many open files", "bus error")
    assert sources[0] == ("roll_core" if is_general else "platform npu")


def test_every_question_has_an_answer_and_every_error_is_asked_about() -> None:
    assert {question for question, _, _ in asked()} == {row[0] for row in tables(ENGLISH)[QUESTIONS]}
    from roll_ascend.known_errors import KNOWN_ERRORS

    texts = [name for _, kind, name in asked() if kind == "error"]
    assert [error.cause for error in KNOWN_ERRORS if not any(error.explains(text) for text in texts)] == []


def test_findings_of_core_that_are_named_are_there() -> None:
    from roll_core.doctor.limits import limit_findings, shared_memory_findings

    assert {one.subject for one in (*limit_findings(), *shared_memory_findings())} >= FINDINGS_OF_CORE
