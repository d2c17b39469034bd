r"""Where the final answer stands in a response: the last \boxed{...} outside the thinking part.

The thinking part is optional. Format is not graded here: whoever wants to reward it does so with a score of its own.
"""

from __future__ import annotations

import re

# White space in the patterns is bounded so that no text makes them slow.
_THINK_TAG = re.compile(r"<\s?(/?)\s?think\s?>", re.IGNORECASE)
_BOX = r"(?:boxed|fbox)\s{0,8}"
# In each: a box with its opening brace, an escaped brace, another escaped character, a brace.
_TOKEN = re.compile(rf"(?P<box>\\{_BOX}\\?\{{)|(?P<escaped>\\[{{}}])|\\.|(?P<brace>[{{}}])", re.DOTALL)
_DOUBLED_TOKEN = re.compile(
    rf"(?P<box>\\\\{_BOX}\\{{0,2}}\{{)|(?P<escaped>\\\\?[{{}}])|\\.|(?P<brace>[{{}}])", re.DOTALL
)
_IS_DOUBLED = re.compile(r"(?<!\\)\\\\(?:boxed|fbox)")
# As TeX reads it, without braces: \boxed 3, and what people mean by \boxed 42.
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,8}(-?[0-9][0-9.,/]{0,40}(?<![.,/])(?![0-9]))")
# Longer answer parts are read from their end.
_MAX_CHARACTERS = 4_000_000


def answer_part(response: str) -> str:
    """The response without its thinking parts.

    A closing tag that nothing opened ends a thinking part that the prompt opened; further ones are ignored. Without
    any closing tag the whole response is the answer part: the model was cut off, or does not use the tags.
    """
    pieces: list[str] = []
    position = 0
    is_thinking = False
    has_closed = False
    for tag in _THINK_TAG.finditer(response):
        is_closing = bool(tag.group(1))
        if not is_thinking and (has_closed or not is_closing):
            pieces.append(response[position : tag.start()])
        has_closed = has_closed or is_closing
        is_thinking = not is_closing
        position = tag.end()
    if not has_closed:
        return _THINK_TAG.sub(" ", response)
    if not is_thinking:
        pieces.append(response[position:])
    return "".join(pieces)


def last_boxed(text: str) -> str | None:
    r"""The content of the last balanced \boxed{...} or \fbox{...}, or None.

    Also reads `\boxed\{...\}` and text whose backslashes are doubled, which is what arrives when JSON was escaped
    once too often. One pass over the text, whatever it holds.
    """
    text = text[-_MAX_CHARACTERS:]
    is_doubled = _IS_DOUBLED.search(text) is not None
    best: tuple[int, int, int] | None = None
    # Open braces, escaped ones apart: the start and end of the box they belong to, or (-1, 0).
    plain: list[tuple[int, int]] = []
    escaped: list[tuple[int, int]] = []
    for token in (_DOUBLED_TOKEN if is_doubled else _TOKEN).finditer(text):
        kind = token.lastgroup
        if kind is None:
            continue
        brace = token.group()
        if kind == "box":
            (escaped if brace.endswith("\\{") else plain).append(token.span())
            continue
        stack = plain if kind == "brace" else escaped
        if brace.endswith("{"):
            stack.append((-1, 0))
        elif stack:
            start, content = stack.pop()
            # Of two nested boxes the inner one wins: it starts last.
            if start >= 0 and (best is None or start > best[0]):
                best = (start, content, token.start())
    if best is None:
        bare = _BARE_BOX.findall(text)
        return bare[-1] if bare else None
    _, content, end = best
    return _unescaped(text[content:end], is_doubled, text[:content].endswith("\\{"))


def _unescaped(content: str, is_doubled: bool, has_escaped_braces: bool) -> str:
    if is_doubled:
        content = content.replace("\\\\", "\\")
    if has_escaped_braces and not re.search(r"(?<!\\)\{", content):
        content = content.replace("\\{", "{").replace("\\}", "}")
    return content


def final_answer(response: str) -> str | None:
    """The boxed answer of a response, or None where its answer part has none."""
    if "boxed" not in response and "fbox" not in response:
        return None
    return last_boxed(answer_part(response))
