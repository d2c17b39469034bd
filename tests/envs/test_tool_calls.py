"""Calls of tools: what fits a schema, and what is said of what does not."""

from __future__ import annotations

import pytest

from roll_core.envs.tool_calls import Call, CallError, read_calls

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "exact": {"type": "boolean"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
OPEN = {"type": "function", "function": {"name": "note"}}


def calls(inner: str) -> list[Call]:
    return read_calls(f"I will <tool_call>\n{inner}\n</tool_call> now", [WEATHER, OPEN])


def test_a_call_that_fits_is_read() -> None:
    given = {"city": "Oslo", "days": 2, "unit": "C", "exact": True}
    inner = '{"name": "weather", "arguments": {"city": "Oslo", "days": 2, "unit": "C", "exact": true}}'
    assert calls(inner) == [Call("weather", given)]


def test_a_tool_without_parameters_takes_any() -> None:
    assert calls('{"name": "note", "arguments": {"anything": [1]}}') == [Call("note", {"anything": [1]})]
    assert calls('{"name": "note"}') == [Call("note", {})]


def test_there_may_be_no_call() -> None:
    assert read_calls("nothing to call", [WEATHER]) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", 'weather needs "city"; it was given: nothing'),
        ('{"town": "Oslo"}', 'weather needs "city"; it was given: town'),
        ('{"city": "Oslo", "when": 1}', 'weather takes no "when"; it takes: city, days, unit, exact'),
        ('{"city": null}', '"city" of weather is null, not string'),
        ('{"city": "Oslo", "days": true}', '"days" of weather is boolean, not integer'),
        ('{"city": "Oslo", "days": 1.5}', '"days" of weather is number, not integer'),
        ('{"city": "Oslo", "exact": 1}', '"exact" of weather is integer, not boolean'),
        ('{"city": "Oslo", "unit": "K"}', '"unit" of weather is one of C, F'),
        ('"Oslo"', '"arguments" of weather is string, not an object'),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments: str, said: str) -> None:
    with pytest.raises(CallError) as error:
        calls(f'{{"name": "weather", "arguments": {arguments}}}')
    assert str(error.value) == said
