"""What a config file must be before it is put together: a text that somebody wrote, with one YAML mapping in it."""

from __future__ import annotations

from pathlib import Path

import yaml

from roll_core.errors import Problem

MAX_BYTES = 256 * 1024
"""Published configs have up to ten kilobytes; a data file given by mistake would be parsed for minutes."""
_MAX_VALUES = 100_000
_NOTHING = ("", "~", "null")
_MAPPING = "a mapping of keys to values"


def text_problem(path: Path) -> Problem | None:
    """Why a file can be no config; None if it may be one. Where in its YAML a mistake is, reading it will say."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        return Problem("", f"cannot be read: {error.strerror or error}", None, "a file that you may read")
    if size > MAX_BYTES:
        rule = f"has {size / 2**20:.1f} MiB; a config has {MAX_BYTES // 1024} KiB at most"
        return Problem("", rule, None, "the config itself; data files are named in it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start}"
        return Problem("", rule, None, "save it as a text in UTF-8")
    if "\0" in text:
        return Problem("", f"is no text: it has a zero byte at position {text.index(chr(0))}", None, "a YAML file")
    try:
        return _mapping_problem(text.removeprefix("\ufeff"))
    except (yaml.YAMLError, RecursionError):
        return None


def _mapping_problem(text: str) -> Problem | None:
    # Events come one by one, so the rest of the text is not parsed for this.
    first = next((event for event in yaml.parse(text) if isinstance(event, yaml.NodeEvent)), None)
    if first is None or (isinstance(first, yaml.ScalarEvent) and first.value in _NOTHING and not first.style):
        return Problem("", "is empty: it has no key", None, _MAPPING)
    if isinstance(first, yaml.SequenceStartEvent | yaml.ScalarEvent):
        held = "a list" if isinstance(first, yaml.SequenceStartEvent) else f"one value: {first.value[:40]!r}"
        return Problem("", f"must be {_MAPPING}, it holds {held}")
    if "&" in text and "*" in text and _num_values(yaml.compose(text, yaml.SafeLoader), {}) > _MAX_VALUES:
        rule = f"its aliases stand for more than {_MAX_VALUES:,} values"
        return Problem("", rule, None, "references such as ${response_length} in place of aliases of aliases")
    return None


def _num_values(node: yaml.Node | None, counted: dict[int, int]) -> int:
    """How many values a node stands for, each alias as often as it is used."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in counted:
        # A node within itself is no size: reading it ends with an error of its own.
        counted[id(node)] = 0
        children = [child for pair in node.value for child in (pair if isinstance(pair, tuple) else (pair,))]
        counted[id(node)] = 1 + sum(_num_values(child, counted) for child in children)
    return counted[id(node)]
