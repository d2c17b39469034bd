"""What the strategy's process and its engine's process say to each other, pickled over a pair of sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Generate:
    """Complete a prompt. `rid` is an id of fixed width: SGLang aborts all requests whose id begins with one's."""

    rid: str
    prompt_ids: tuple[int, ...]
    sampling: dict[str, Any]


@dataclass(frozen=True)
class Abort:
    """End requests, those included that the engine has not seen yet."""

    rids: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """Do something while nothing runs; answered by an Answer with the same number."""

    number: int
    action: Literal["flush", "release", "resume", "load"]
    argument: str = ""


@dataclass(frozen=True)
class Started:
    """The engine is up; the longest text it reads, in tokens."""

    max_length: int


@dataclass(frozen=True)
class NotStarted:
    """The engine's own error."""

    cause: str


@dataclass(frozen=True)
class Output:
    """A request ended: what SGLang says of it."""

    rid: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_type: str
    remark: str = ""


@dataclass(frozen=True)
class Refused:
    """A request ended with an error."""

    rid: str
    cause: str


@dataclass(frozen=True)
class Answer:
    """What a Call gave, or the error it ended with."""

    number: int
    value: Any = None
    cause: str | None = None
