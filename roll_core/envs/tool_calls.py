"""Tool calls that a model writes as JSON between tags, and what is wrong with those that are malformed.

Messages are observations: they are written for the model, and say what was found and what is expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CALL_PATTERN = r"<tool_call>(.*?)</tool_call>"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class CallError(ValueError):
    """A call that cannot be carried out."""


@dataclass(frozen=True)
class Call:
    """A call that fits its tool's schema."""

    name: str
    arguments: Mapping[str, Any]


def tool_text(tool: Mapping[str, Any]) -> str:
    """A tool's schema as one line of JSON, as chat templates write it."""
    return json.dumps(tool, ensure_ascii=False)


def read_calls(
    answer: str, tools: Sequence[Mapping[str, Any]], pattern: str = CALL_PATTERN, most: int = 8
) -> list[Call]:
    """The calls in an answer; none where it has none.

    Args:
        tools: the schemas of the tools, as functions of OpenAI's chat API. Of JSON schema, `type`, `properties`,
            `required`, `enum` and `additionalProperties: false` of the arguments are checked.
        pattern: searched with DOTALL; its one group is a call.
        most: calls that one answer may have.

    Raises:
        CallError: a call is malformed.
    """
    found = [match[1] for match in re.finditer(pattern, answer, re.DOTALL)]
    if not found and pattern == CALL_PATTERN and "<tool_call>" in answer:
        raise CallError("the call has no end; write <tool_call>...</tool_call>")
    if len(found) > most:
        raise CallError(f"{len(found)} calls in one answer; at most {most} are taken")
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    return [_call(text, schemas) for text in found]


def _call(text: str, schemas: Mapping[str, Mapping[str, Any]]) -> Call:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f": {error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise CallError(f'the call is not JSON{where}; write {{"name": ..., "arguments": {{...}}}}') from None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise CallError('the call has no "name"; write {"name": ..., "arguments": {...}}')
    name, arguments = call["name"], call.get("arguments", {})
    if name not in schemas:
        raise CallError(f"there is no tool '{name[:80]}'; there is: {', '.join(schemas)}")
    if not isinstance(arguments, dict):
        raise CallError(f'"arguments" of {name} is {_type_of(arguments)}, not an object')
    problem = _problem(name, arguments, schemas[name])
    if problem:
        raise CallError(problem)
    return Call(name, arguments)


def _problem(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    missing = [key for key in schema.get("required", []) if key not in arguments]
    if missing:
        return f'{name} needs "{missing[0]}"; it was given: {", ".join(map(str, arguments))[:80] or "nothing"}'
    unknown = [key for key in arguments if key not in properties]
    if unknown and schema.get("additionalProperties") is False:
        return f'{name} takes no "{unknown[0][:80]}"; it takes: {", ".join(properties)}'
    for key in (key for key in properties if key in arguments):
        wanted, value = properties[key].get("type"), arguments[key]
        # In Python, true is a number too.
        is_of_type = isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        if not is_of_type:
            return f'"{key}" of {name} is {_type_of(value)}, not {wanted}'
        choices = properties[key].get("enum")
        if choices and value not in choices:
            return f'"{key}" of {name} is one of {", ".join(map(str, choices))}'
    return None


def _type_of(value: object) -> str:
    return next((name for name, types in _TYPES.items() if type(value) in types), "null")
