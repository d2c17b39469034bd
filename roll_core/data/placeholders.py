"""Where in a dialogue the images of a row stand: the text `<image>`, once for each, in the order of the column."""

from __future__ import annotations

from collections.abc import Sequence

from roll_core.data.messages import BadField, Message, kind_of

PLACEHOLDER = "<image>"


def as_text(turns: object) -> object:
    """Turns whose content is a list of parts, as chat formats have it, with text and placeholders instead.

    Raises:
        BadField: a part that is neither text nor an image, or an image that does not stand in the column.
    """
    if not isinstance(turns, list):
        return turns
    made: list[object] = []
    for position, turn in enumerate(turns):
        if isinstance(turn, dict) and isinstance(turn.get("content"), list):
            where = f"[{position}].content"
            parts = [_part(f"{where}[{number}]", part) for number, part in enumerate(turn["content"])]
            turn = turn | {"content": "".join(parts)}
        made.append(turn)
    return made


def _part(where: str, part: object) -> str:
    if not isinstance(part, dict) or part.get("type") not in ("text", "image"):
        raise BadField(where, "must be an object whose type is text or image", part)
    if part["type"] == "text":
        text = part.get("text")
        if not isinstance(text, str):
            raise BadField(f"{where}.text", f"must be text, found {kind_of(text)}", text)
        return text
    if set(part) - {"type"}:
        rule = "holds an image; images stand in a column of their own, which data_args.image names"
        raise BadField(where, rule, None, '{"type": "image"}')
    return PLACEHOLDER


def place(messages: Sequence[Message], num_images: int) -> tuple[Message, ...]:
    """The dialogue with a placeholder for each image: where it has none at all, they go before the first question.

    Raises:
        BadField: more or fewer placeholders than images.
    """
    found = sum(str(message["content"]).count(PLACEHOLDER) for message in messages)
    if found == num_images:
        return tuple(messages)
    if found:
        rule = f"holds {found} times {PLACEHOLDER}, and the row has {num_images} image{'' if num_images == 1 else 's'}"
        hint = f"one {PLACEHOLDER} for each image, in their order; or none, and images go before the first question"
        raise BadField("", rule, None, hint)
    placed, is_done = [], False
    for message in messages:
        if message["role"] == "user" and not is_done:
            message, is_done = {**message, "content": PLACEHOLDER * num_images + str(message["content"])}, True
        placed.append(message)
    if not is_done:
        raise BadField("", "has no user turn that the images could go to", None, f"write {PLACEHOLDER} where they go")
    return tuple(placed)


def parts_of(content: str) -> list[dict[str, str]]:
    """Text with placeholders as the list of parts that a model's own chat template takes."""
    parts: list[dict[str, str]] = []
    for number, text in enumerate(content.split(PLACEHOLDER)):
        if number:
            parts.append({"type": "image"})
        if text:
            parts.append({"type": "text", "text": text})
    return parts
