"""Changes to a YAML file as text: what is not changed keeps every character, comments and order included.

Positions come from PyYAML's nodes; the file is never written out from data. Paths are tuples of keys below the top
mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str, ...]


# The parser in C is some ten times faster, and the text is read again after every change.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _nodes(text: str) -> Any:
    """The top node. An alias is a node of its own where it stands, not the node that its anchor marks."""
    events = yaml.parse(text, Loader=_LOADER)
    return next((_node(event, events) for event in events if isinstance(event, yaml.NodeEvent)), None)


def _node(event: Any, events: Iterator[Any]) -> Any:
    start, end = event.start_mark, event.end_mark
    kind = type(event)
    if kind is yaml.AliasEvent:
        return yaml.ScalarNode("alias", f"*{event.anchor}", start, end)
    if kind is yaml.ScalarEvent:
        return yaml.ScalarNode("", event.value, start, end, style=event.style)
    children = []
    for inner in events:
        if isinstance(inner, yaml.CollectionEndEvent):
            break
        children.append(_node(inner, events))
    if kind is yaml.SequenceStartEvent:
        return yaml.SequenceNode("", children, start, inner.end_mark, flow_style=event.flow_style)
    pairs = list(zip(children[::2], children[1::2], strict=True))
    return yaml.MappingNode("", pairs, start, inner.end_mark, flow_style=event.flow_style)


class YamlText:
    """A YAML mapping as text that can be changed key by key."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._read()

    def has(self, path: Path) -> bool:
        """Whether the file itself has the key; what it includes or merges from an anchor does not count."""
        return self._entry(path) is not None

    def is_section(self, path: Path) -> bool:
        """Whether the key holds a mapping in this file, and not a plain value such as `${other.section}`."""
        entry = self._entry(path)
        return entry is not None and isinstance(entry[1], yaml.MappingNode)

    def keys(self, path: Path) -> list[str]:
        """The keys of a section, in order; empty where it is no section of this file."""
        node = self._node(path)
        return [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []

    def raw(self, path: Path) -> str | None:
        """A plain value as it is written, without quotes; None where there is none."""
        entry = self._entry(path)
        return entry[1].value if entry is not None and isinstance(entry[1], yaml.ScalarNode) else None

    def set(self, path: Path, value: Any, *, first: bool = False) -> None:
        """Give a key a value, adding what is missing of its path.

        Args:
            first: add the key before those that its section has, not after them.
        """
        entry = self._entry(path)
        if entry is not None:
            self._replace(entry, value)
        else:
            self._add(path, value, first)
        self._read()

    def rename(self, path: Path, key: str) -> None:
        """Give a key another name, in its place."""
        entry = self._entry(path)
        assert entry is not None, path
        self._splice(entry[0].start_mark.index, entry[0].end_mark.index, key)
        self._read()

    def remove(self, path: Path) -> None:
        """Take a key and its value out; a section that is empty without it becomes `{}`. Comments elsewhere stay."""
        parent = self._node(path[:-1])
        if not self.has(path):
            return
        if len(parent.value) == 1 and len(path) > 1 and not parent.flow_style:
            self._empty(path[:-1])
        else:
            self._remove(parent, path[-1])
        self._read()

    def remove_item(self, path: Path, text: str) -> None:
        """Take a plain item out of a list, and the list if nothing else is in it."""
        entry = self._entry(path)
        items = entry[1].value if entry is not None and isinstance(entry[1], yaml.SequenceNode) else []
        found = [item for item in items if item.value == text]
        if not found:
            return
        if len(items) == 1:
            self.remove(path)
            return
        assert entry is not None
        if entry[1].flow_style:
            self._remove_from_flow([(item, item) for item in items], items.index(found[0]))
        else:
            self._splice(*self._lines(found[0].start_mark.index, found[0].end_mark.index), "")
        self._read()

    def _read(self) -> None:
        node = _nodes(self.text)
        assert isinstance(node, yaml.MappingNode), "a mapping of keys to values is expected"
        self._root = node

    def _node(self, path: Path) -> Any:
        if not path:
            return self._root
        entry = self._entry(path)
        return None if entry is None else entry[1]

    def _entry(self, path: Path) -> tuple[Any, Any] | None:
        node: Any = self._root
        entry = None
        for part in path:
            if not isinstance(node, yaml.MappingNode):
                return None
            entry = next((pair for pair in node.value if pair[0].value == part), None)
            if entry is None:
                return None
            node = entry[1]
        return entry

    def _replace(self, entry: tuple[Any, Any], value: Any) -> None:
        key, node = entry
        start, end = node.start_mark.index, _end(node, self.text)
        if isinstance(node, yaml.ScalarNode) and not isinstance(value, dict):
            if start == end:
                self._splice(start, end, f" {_scalar(value)}")
            else:
                self._splice(start, end, _scalar(value))
            return
        if self._is_in_flow(key):
            self._splice(start, end, _flow(value))
            return
        column = key.start_mark.column
        if isinstance(node, yaml.ScalarNode):
            # The comment behind the old value stays where it is; the lines of the new one follow.
            line_end = self._line_end(end)
            self._splice(line_end, line_end, self._block(value, column + 2))
            self._splice(start, end, "")
            self._strip_blanks_before(start)
        else:
            first, last = self._lines(node.start_mark.index, end)
            self._splice(first, last, self._block(value, column + 2))

    def _add(self, path: Path, value: Any, first: bool) -> None:
        depth = len(path) - 1
        while depth and not self.has(path[:depth]):
            depth -= 1
        for part in reversed(path[depth + 1 :]):
            value = {part: value}
        section = self._node(path[:depth])
        pair = {path[depth]: value}
        if not isinstance(section, yaml.MappingNode):
            entry = self._entry(path[:depth])
            assert entry is not None
            self._replace(entry, pair)
        elif section.flow_style:
            inside = "" if not section.value else ", "
            at = section.end_mark.index - 1
            self._splice(at, at, inside + _flow(pair)[1:-1])
        elif first:
            key = section.value[0][0]
            at = self._line_start(key.start_mark.index)
            self._splice(at, at, self._block(pair, key.start_mark.column))
        else:
            at = self._line_end(_end(section, self.text))
            self._splice(at, at, self._block(pair, section.value[0][0].start_mark.column))

    def _remove(self, parent: Any, name: str) -> None:
        at = next(index for index, (key, _) in enumerate(parent.value) if key.value == name)
        if parent.flow_style:
            self._remove_from_flow(parent.value, at)
            return
        key, node = parent.value[at]
        self._splice(*self._lines(key.start_mark.index, max(key.end_mark.index, _end(node, self.text))), "")

    def _empty(self, path: Path) -> None:
        entry = self._entry(path)
        assert entry is not None
        key, node = entry
        inside = _end(node, self.text)
        self._splice(*self._lines(node.start_mark.index, max(inside, node.value[-1][0].end_mark.index)), "")
        colon = self.text.index(":", key.end_mark.index) + 1
        self._splice(colon, colon, " {}")

    def _remove_from_flow(self, pairs: list[Any], at: int) -> None:
        if len(pairs) == 1:
            self._splice(pairs[0][0].start_mark.index, _end(pairs[0][1], self.text), "")
        elif at + 1 < len(pairs):
            self._splice(pairs[at][0].start_mark.index, pairs[at + 1][0].start_mark.index, "")
        else:
            self._splice(_end(pairs[at - 1][1], self.text), _end(pairs[at][1], self.text), "")

    def _is_in_flow(self, key: Any) -> bool:
        return any(key is one for node in _mappings(self._root) if node.flow_style for one, _ in node.value)

    def _block(self, value: dict[str, Any], column: int) -> str:
        dumped = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True, width=10**6)
        return "".join(" " * column + line + self._newline for line in _indented_lists(dumped).splitlines())

    def _splice(self, start: int, end: int, text: str) -> None:
        before = self.text[:start]
        if start == len(self.text) and before and not before.endswith("\n") and text.endswith("\n"):
            before += self._newline
        self.text = before + text + self.text[end:]

    def _strip_blanks_before(self, at: int) -> None:
        line_end = self.text.find("\n", at)
        rest = self.text[at : line_end if line_end >= 0 else len(self.text)]
        if not rest.strip():
            stripped = len(self.text[:at].rstrip(" "))
            self.text = self.text[:stripped] + self.text[at + len(rest.rstrip("\r")) :]

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found + 1

    def _lines(self, start: int, end: int) -> tuple[int, int]:
        """Where the lines that hold a span begin and end."""
        return self._line_start(start), self._line_end(end)


def _end(node: Any, text: str) -> int:
    """Where a value's own text ends, without the comments and blank lines behind it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        end = int(node.end_mark.index)
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        return len(text[:end].rstrip()) if is_block else end
    last = node.value[-1]
    return max(_end(last[1], text), last[0].end_mark.index) if isinstance(last, tuple) else _end(last, text)


def _mappings(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, child in node.value:
            yield from _mappings(child)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _mappings(child)


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return _flow(value)
    dumped = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return str(dumped).removesuffix("...\n").strip()


def _flow(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)).strip()


def _indented_lists(dumped: str) -> str:
    """PyYAML writes the items of a list below its key; published configs indent them by two."""
    lines, depth_of_list = [], -1
    for line in dumped.splitlines():
        indent = len(line) - len(line.lstrip())
        is_item = line.lstrip().startswith("- ")
        if not is_item and indent <= depth_of_list:
            depth_of_list = -1
        if is_item:
            depth_of_list = indent
        lines.append(f"  {line}" if is_item else line)
    return "\n".join(lines)
