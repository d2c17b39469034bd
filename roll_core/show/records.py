"""A rollout as it is shown, and how one is read from a line of a dump."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["train", "validation"]


@dataclass(frozen=True)
class Turn:
    """What one side said. `reward` and `metrics` are those of the step that an answer led to."""

    role: str
    text: str
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Token:
    """A token's text, and its advantage where it was trained on."""

    text: str
    advantage: float | None = None


@dataclass(frozen=True)
class Rollout:
    """An answer, or an episode of many turns.

    `prompt` is the text that the model saw first, where `turns` do not begin with it. `end` says how it ended, or the
    status and reason of its reward.
    """

    kind: Kind
    step: int
    id: str
    group: str
    tag: str
    score: float | None
    is_success: bool | None
    end: str
    prompt: str
    turns: tuple[Turn, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    tokens: tuple[Token, ...] = ()


def read_rollout(line: str | bytes, kind: Kind, step: int) -> Rollout:
    """The rollout of a line: an answer with `prompt` and `response`, or an episode with `turns`.

    A turn is `observation` and `answer`, or `role` and `text`. `tokens` and `advantages`, of one length, may be there.

    Raises:
        ValueError: the line is something else.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict) or not ("response" in row or isinstance(row.get("turns"), list)):
        raise ValueError("neither an answer with 'response' nor an episode with 'turns'")
    is_episode = "response" not in row
    score = _number(row.get("score", row.get("reward")))
    success = row.get("success")
    turns = tuple(turn for given in row["turns"] for turn in _turns(given)) if is_episode else _answer(row, score)
    return Rollout(
        kind=kind,
        step=step,
        id=_text(row.get("traj_id", row.get("id"))),
        group=_text(row.get("traj_group_id", row.get("group"))),
        tag=_text(row.get("tag", row.get("env"))),
        score=score,
        is_success=success if isinstance(success, bool) else None,
        end=", ".join(filter(None, (_text(row.get(name)) for name in ("end", "status", "reason")))),
        prompt=_text(row.get("prompt")) if is_episode else "",
        turns=turns,
        metrics=_numbers(row.get("metrics")),
        tokens=_tokens(row),
    )


def _answer(row: Mapping[str, Any], score: float | None) -> tuple[Turn, ...]:
    return Turn("prompt", _text(row.get("prompt"))), Turn("assistant", _text(row["response"]), score)


def _turns(given: object) -> tuple[Turn, ...]:
    if not isinstance(given, dict):
        raise ValueError(f"a turn is {type(given).__name__}, not an object")
    reward, metrics = _number(given.get("reward")), _numbers(given.get("metrics"))
    if "answer" in given:
        seen = Turn("environment", _text(given.get("observation")))
        return seen, Turn("assistant", _text(given["answer"]), reward, metrics)
    return (Turn(_text(given.get("role")), _text(given.get("text", given.get("content"))), reward, metrics),)


def _tokens(row: Mapping[str, Any]) -> tuple[Token, ...]:
    texts = row.get("tokens") or []
    advantages = row.get("advantages") or [None] * len(texts)
    if not isinstance(texts, list) or not isinstance(advantages, list) or len(texts) != len(advantages):
        raise ValueError("'tokens' and 'advantages' are not lists of one length")
    return tuple(Token(_text(text), _number(advantage)) for text, advantage in zip(texts, advantages))


def _text(value: object) -> str:
    """A value as text that can be written to a file: what is no text becomes JSON, lone surrogates question marks."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _number(value: object) -> float | None:
    """A finite number; anything else is as good as missing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _numbers(value: object) -> dict[str, float]:
    given = value if isinstance(value, dict) else {}
    found = {_text(name): _number(number) for name, number in given.items()}
    return {name: number for name, number in found.items() if number is not None}
