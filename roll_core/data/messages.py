"""The dialogue of a row: what its `messages` column may look like, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

Message = Mapping[str, object]
ROLES = ("system", "user", "assistant", "tool")
_AS_DOCUMENTED = 'a list of {"role": ..., "content": ...}, or that list as JSON text'


class BadField(Exception):
    """One field of one row cannot be used: where in the field (may be empty), the rule, the value and what to do."""

    def __init__(self, where: str, rule: str, value: object = None, hint: str = "") -> None:
        super().__init__(rule)
        self.where, self.rule, self.value, self.hint = where, rule, value, hint


def kind_of(value: object) -> str:
    """What a JSON value is, in the words of JSON."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def read_messages(value: object, prepare: Callable[[object], object] = lambda turns: turns) -> tuple[Message, ...]:
    """The turns of a dialogue that ends where the model is to answer. `prepare` changes turns before they are checked.

    Accepts a list of turns, that list as JSON text, JSON text of that JSON text, and a list that holds one such list:
    all four are met in published data.

    Raises:
        BadField: anything else, an empty dialogue, a turn without role or content, a last turn that is the assistant's.
    """
    turns = _unwrap(value)
    prepared = prepare(turns)
    assert isinstance(prepared, list)
    turns = prepared
    for position, turn in enumerate(turns):
        _check_turn(f"[{position}]", turn)
    last = turns[-1]["role"]
    if last not in ("user", "tool"):
        raise BadField(
            f"[{len(turns) - 1}].role",
            f"the last turn is the {last}'s, so nothing is left to answer",
            last,
            "end the dialogue with a user turn; put the expected answer into ground_truth",
        )
    if last == "user" and not str(turns[-1]["content"]).strip():
        raise BadField(f"[{len(turns) - 1}].content", "is blank", turns[-1]["content"], "write the question as text")
    return tuple(turns)


def from_prompt(value: object) -> tuple[Message, ...]:
    """A `prompt` column as a dialogue of one user turn.

    Raises:
        BadField: it is not text, or blank.
    """
    if not isinstance(value, str):
        hint = "a list of turns belongs into messages" if isinstance(value, list) else "write the prompt as text"
        raise BadField("", f"must be text, found {kind_of(value)}", value, hint)
    if not value.strip():
        raise BadField("", "is blank", value, "write the prompt as text")
    _check_encodable("", value)
    return ({"role": "user", "content": value},)


def _check_encodable(where: str, text: str) -> None:
    """Half of a surrogate pair is legal in JSON and in Python text, but no tokenizer can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        rule = f"holds half of a surrogate pair (\\u{ord(text[error.start]):04x})"
        raise BadField(where, rule, None, "write the character itself, or both halves") from None


def _unwrap(value: object) -> list[dict[str, object]]:
    for _ in range(2):
        if isinstance(value, str):
            value = _parse(value)
    if not isinstance(value, list):
        raise BadField("", f"must be {_AS_DOCUMENTED}; found {kind_of(value)}", value)
    if len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    elif value and all(isinstance(turn, list) for turn in value):
        raise BadField("", f"holds {len(value)} dialogues, a row has one", value, "write one row per dialogue")
    if not value:
        raise BadField("", "is an empty list", value, "give at least one user turn")
    return value


def _parse(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "a plain question belongs into prompt"
        raise BadField("", f"is text but not JSON ({error}); must be {_AS_DOCUMENTED}", text, hint) from None
    return parsed


def _check_turn(where: str, turn: object) -> None:
    if not isinstance(turn, dict):
        raise BadField(where, f"must be an object with role and content, found {kind_of(turn)}", turn)
    for key in ("role", "content"):
        if key not in turn:
            renamed = {"role": "from", "content": "value"}[key]
            hint = f"rename '{renamed}' to '{key}'" if renamed in turn else f"add '{key}'"
            raise BadField(where, f"has no {key}", turn, hint)
        if not isinstance(turn[key], str):
            raise BadField(f"{where}.{key}", f"must be text, found {kind_of(turn[key])}", turn[key])
    _check_encodable(f"{where}.content", str(turn["content"]))
    if turn["role"] not in ROLES:
        raise BadField(f"{where}.role", "is not a known role", turn["role"], f"known roles: {', '.join(ROLES)}")
