from __future__ import annotations

import json

import pytest

from roll_core.data.messages import BadField, from_prompt, read_messages

TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    "given",
    [TURNS, json.dumps(TURNS), json.dumps(json.dumps(TURNS)), [TURNS], json.dumps([TURNS])],
    ids=["list", "text", "text of text", "list of a list", "text of a list of a list"],
)
def test_every_published_form_of_a_dialogue_is_the_same_dialogue(given):
    assert list(read_messages(given)) == TURNS


def test_other_keys_of_a_turn_are_kept_for_the_template():
    turn = {"role": "user", "content": "u", "name": "Ada"}
    assert list(read_messages([turn])) == [turn]


@pytest.mark.parametrize(
    ("given", "where", "rule"),
    [
        ([], "", "is an empty list"),
        ("[]", "", "is an empty list"),
        ([[]], "", "is an empty list"),
        ([TURNS, TURNS], "", "holds 2 dialogues, a row has one"),
        ({"role": "user"}, "", 'must be a list of {"role": ..., "content": ...}, or that list as JSON text; found an '),
        ("What is 1+1?", "", "is text but not JSON (Expecting value: line 1 column 1 (char 0)); must be"),
        (["hello"], "[0]", "must be an object with role and content, found text"),
        ([*TURNS, {"role": "assistant", "content": "a"}], "[2].role", "the last turn is the assistant's, so nothing"),
        ([{"role": "system", "content": "s"}], "[0].role", "the last turn is the system's"),
        ([{"role": "user"}], "[0]", "has no content"),
        ([{"role": "user", "content": " "}], "[0].content", "is blank"),
        ([{"content": "u"}], "[0]", "has no role"),
        ([{"role": "user", "content": None}], "[0].content", "must be text, found null"),
        ([{"role": "human", "content": "u"}], "[0].role", "is not a known role"),
    ],
)
def test_a_dialogue_that_cannot_be_answered_is_refused(given, where, rule):
    with pytest.raises(BadField) as error:
        read_messages(given)
    assert error.value.where == where
    assert error.value.rule.startswith(rule)


def test_the_keys_of_another_format_are_named():
    with pytest.raises(BadField) as error:
        read_messages([{"from": "user", "value": "u"}])
    assert error.value.hint == "rename 'from' to 'role'"


def test_a_prompt_is_one_user_turn():
    assert from_prompt("1+1?") == ({"role": "user", "content": "1+1?"},)


@pytest.mark.parametrize(("given", "rule"), [(" ", "is blank"), (3, "must be text, found a number")])
def test_a_prompt_that_asks_nothing_is_refused(given, rule):
    with pytest.raises(BadField) as error:
        from_prompt(given)
    assert error.value.rule == rule
