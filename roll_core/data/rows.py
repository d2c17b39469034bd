"""A row of a data file: the fields every row needs, and those that its domain needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from roll_core.data.images import ImageSource, read_sources
from roll_core.data.messages import BadField, Message, from_prompt, kind_of, read_messages
from roll_core.data.placeholders import PLACEHOLDER, as_text, place
from roll_core.data.tags import nearest, route
from roll_core.errors import Problem

T = TypeVar("T")

DOMAIN_FIELDS: dict[str, tuple[str, ...]] = {
    "math_rule": ("ground_truth",),
    "code_sandbox": ("test_cases", "case_type"),
    "llm_judge": ("ground_truth",),
    "ifeval": (),
    "crossthinkqa": ("ground_truth",),
}
"""What a domain's rows need beyond id, tag and a prompt. A domain that is not listed needs nothing more."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns, for files that call them differently (`data_args.id`, `.tag`, ...).

    `messages` may be empty: then only the prompt column is looked at. `image` is empty where rows have no images; no
    row is then looked at for any.
    """

    id: str = "id"
    tag: str = "tag"
    messages: str = "messages"
    prompt: str = "prompt"
    image: str = ""


@dataclass(frozen=True)
class Row:
    """One problem to be answered and graded.

    `messages` ends with the turn to answer. `prompt` is the text of the question. `fields` holds the other columns as
    they stood in the file, but for that of the images. `file` and `line` (counted from 1) say where the row came from.
    Where there are `images`, the text of `messages` holds a placeholder for each.
    """

    id: str
    messages: tuple[Message, ...]
    prompt: str
    tag: str
    domain: str
    ground_truth: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    line: int = 0
    images: tuple[ImageSource, ...] = ()


def read_row(
    record: Mapping[str, Any], routes: Mapping[str, str], columns: Columns, file: str, line: int
) -> tuple[Row | None, list[Problem]]:
    """The row that a JSON object is, or None; and everything that is wrong with it."""
    problems: list[Problem] = []

    def attempt(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except BadField as bad:
            problems.append(problem_at(file, line, name + bad.where, bad))
            return None

    id_text = attempt(columns.id, lambda: _read_id(_required(record, columns.id)))
    tag = attempt(columns.tag, lambda: _required(record, columns.tag))
    domain = attempt(columns.tag, lambda: route(tag, routes)) if tag is not None else None
    use_messages = bool(columns.messages) and record.get(columns.messages) is not None
    source = columns.messages if use_messages else columns.prompt
    messages = attempt(source, lambda: _read_dialogue(record, columns, use_messages))
    images = attempt(columns.image, lambda: _read_images(record, columns, file))
    if columns.image and messages is not None and images is not None:
        dialogue, count = messages, len(images)
        messages = attempt(source, lambda: place(dialogue, count))
    truth = attempt("ground_truth", lambda: _read_ground_truth(record, domain or ""))
    for name in DOMAIN_FIELDS.get(domain or "", ()):
        if name != "ground_truth":
            attempt(name, lambda name=name: _filled(_required(record, name, f"rows of {domain}")))  # type: ignore[misc]
    if domain == "ifeval":
        attempt("kwargs", lambda: _check_instructions(record))
    if problems or id_text is None or domain is None or messages is None or truth is None or images is None:
        return None, problems
    own = (columns.id, columns.tag, columns.messages, columns.prompt, columns.image, "ground_truth")
    others = {name: value for name, value in record.items() if name not in own}
    prompt = record.get(columns.prompt)
    text = prompt if isinstance(prompt, str) and prompt else str(messages[-1]["content"])
    if images:
        text = text.replace(PLACEHOLDER, "").strip()
    return Row(id_text, messages, text, str(tag), domain, truth, others, file, line, images), []


def problem_at(file: str, line: int, name: str, bad: BadField) -> Problem:
    """A problem whose path is `FILE:LINE: field`, with a value cut to a readable length."""
    where = f"{file}:{line}" + (f": {name}" if name else "")
    return Problem(where, bad.rule, shortened(bad.value), bad.hint)


def shortened(value: object, limit: int = 120) -> object:
    """The value itself if it prints in `limit` characters, else the start of its JSON text."""
    if value is None or len(repr(value)) <= limit:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:limit] + "..."


def _required(record: Mapping[str, Any], name: str, who: str = "every row") -> Any:
    if name not in record:
        close = nearest(name, list(record))
        hint = f"rename '{close}' to '{name}'" if close else f"{who} must have '{name}'"
        raise BadField("", f"is missing; the row has: {', '.join(record) or 'nothing'}", None, hint)
    if record[name] is None:
        raise BadField("", "is null", None, f"{who} must have '{name}'")
    return record[name]


def _filled(value: Any) -> Any:
    if value == "":
        raise BadField("", "is empty", value)
    return value


def _read_id(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadField("", f"must be text or a whole number, found {kind_of(value)}", value)
    return str(_filled(value))


def _read_dialogue(record: Mapping[str, Any], columns: Columns, use_messages: bool) -> tuple[Message, ...]:
    if use_messages:
        if columns.image:
            return read_messages(record[columns.messages], as_text)
        return read_messages(record[columns.messages])
    if record.get(columns.prompt) is None:
        found = f"the row has: {', '.join(record) or 'nothing'}"
        lacks = f"neither {columns.messages} nor {columns.prompt}" if columns.messages else f"no {columns.prompt}"
        raise BadField("", f"the row has {lacks}; {found}", None)
    return from_prompt(record[columns.prompt])


def _read_images(record: Mapping[str, Any], columns: Columns, file: str) -> tuple[ImageSource, ...]:
    return read_sources(record.get(columns.image), Path(file).parent) if columns.image else ()


def _read_ground_truth(record: Mapping[str, Any], domain: str) -> str:
    """Numbers become text, so that files which write 3 and files which write "3" behave alike."""
    if "ground_truth" not in DOMAIN_FIELDS.get(domain, ()):
        value = record.get("ground_truth")
        if isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        return "" if value is None else str(value)
    value = _filled(_required(record, "ground_truth", f"rows of {domain}"))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadField("", f"must be text or a number, found {kind_of(value)}", value, "write it as text")
    return str(value)


def _check_instructions(record: Mapping[str, Any]) -> None:
    """Instruction rows in the published two-column form must pair each instruction with its arguments, once."""
    ids, arguments = record.get("instruction_id_list"), record.get("kwargs")
    if not isinstance(ids, list) or not isinstance(arguments, list):
        return
    if len(ids) != len(arguments):
        raise BadField("", f"holds {len(arguments)} entries for {len(ids)} instruction ids", arguments)
    twice = sorted({str(name) for name in ids if ids.count(name) > 1})
    if twice:
        raise BadField("", f"cannot be told apart, as instruction ids are given twice: {', '.join(twice)}", arguments)
