"""A config while it is migrated: its text, its values, and what was done and left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roll_core.migrate.yaml_text import Path, YamlText

GONE = "(removed)"
NEW = "(new)"


@dataclass(frozen=True)
class Change:
    """One thing that was changed: the dotted key, what stood there, what stands there, and why."""

    path: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class Left:
    """One thing that a person has to look at."""

    path: str
    what: str


@dataclass
class Draft:
    """A config's text with its values, which follow every change."""

    yaml: YamlText
    values: dict[str, Any]
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def get(self, *path: str, default: Any = None) -> Any:
        """A value as hydra would give it; the default where there is none."""
        node: Any = self.values
        for part in path:
            if not isinstance(node, Mapping) or part not in node:
                return default
            node = node[part]
        return node

    def set(self, path: Path, value: Any, reason: str, *, first: bool = False) -> None:
        """Give a key a value; nothing where it has that value already."""
        before = self.get(*path, default=NEW)
        if before == value and type(before) is type(value):
            return
        if self._is_borrowed(path):
            return
        self.yaml.set(path, value, first=first)
        self._put(path, value)
        self.changes.append(Change(".".join(path), _shown(before), _shown(value), reason))

    def remove(self, path: Path, reason: str) -> None:
        """Take a key out."""
        before = self.get(*path, default=NEW)
        if before is NEW:
            return
        if not self.yaml.has(path):
            if not self._is_borrowed(path):
                self.note(path, "comes from another file that this one includes; change it there")
            return
        self.yaml.remove(path)
        self._drop(path)
        self.changes.append(Change(".".join(path), _shown(before), GONE, reason))

    def rename(self, path: Path, key: str, reason: str) -> None:
        """Give a key another name, in its place."""
        if not self.yaml.has(path):
            self.note(path, f"is called {key} there, and comes from another file; change it there")
            return
        value = self.get(*path)
        self.yaml.rename(path, key)
        self._drop(path)
        self._put((*path[:-1], key), value)
        self.changes.append(Change(".".join(path), path[-1], key, reason))

    def note(self, path: Path | str, what: str) -> None:
        """Leave something to a person; the same thing once."""
        one = Left(path if isinstance(path, str) else ".".join(path), what)
        if one not in self.left:
            self.left.append(one)

    def _is_borrowed(self, path: Path) -> bool:
        """Whether a section on the way is written as `${another.section}`, which is changed where it stands."""
        for length in range(1, len(path)):
            above = path[:length]
            text = self.yaml.raw(above)
            if text is not None and "${" in text and isinstance(self.get(*above), Mapping):
                self.note(above, f"is {text}; what has to change is changed there, look whether it suits both")
                return True
        return False

    def _put(self, path: Path, value: Any) -> None:
        node = self.values
        for part in path[:-1]:
            below = node.get(part)
            if not isinstance(below, dict):
                below = node[part] = {}
            node = below
        node[path[-1]] = value

    def _drop(self, path: Path) -> None:
        node: Any = self.values
        for part in path[:-1]:
            node = node.get(part, {})
        node.pop(path[-1], None)


def _shown(value: Any) -> str:
    if value is True or value is False:
        return str(value).lower()
    return "null" if value is None else str(value)
