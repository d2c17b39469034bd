"""A wheel's source and libraries, read without installing or importing it: what it defines and what it reads."""

from __future__ import annotations

import ast
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """A name that a module has: `node` is its definition, None for a module or a value of unknown shape."""

    node: ast.FunctionDef | ast.ClassDef | None = None

    def accepts(self, num_positional: int, keywords: Iterable[str]) -> bool:
        """Whether a call like this would bind. What has no signature in the source is taken to accept anything."""
        if not isinstance(self.node, ast.FunctionDef):
            return True
        given = self.node.args
        positional = [argument.arg for argument in (*given.posonlyargs, *given.args)]
        if num_positional > len(positional) and given.vararg is None:
            return False
        by_name = {*positional[num_positional:], *(argument.arg for argument in given.kwonlyargs)}
        if given.kwarg is None and not set(keywords) <= by_name:
            return False
        required = positional[num_positional : max(0, len(positional) - len(given.defaults))]
        required += [one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults) if default is None]
        return set(required) <= set(keywords)


class SourceIndex:
    """One wheel."""

    def __init__(self, wheel: Path) -> None:
        self.archive = zipfile.ZipFile(wheel)
        self.files = set(self.archive.namelist())
        self._trees: dict[str, ast.Module] = {}

    def path_of(self, module: str) -> str:
        """The file of a module or package; empty where there is none."""
        base = module.replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self.files), "")

    def has_module(self, module: str) -> bool:
        """Whether there is such a module, package, or compiled module."""
        base = module.replace(".", "/")
        return bool(self.path_of(module)) or any(
            (path.startswith(f"{base}.") and path.endswith(".so")) or path.startswith(f"{base}/") for path in self.files
        )

    def tree(self, path: str) -> ast.Module:
        """A file's syntax tree."""
        if path not in self._trees:
            with warnings.catch_warnings():
                # Of escapes in strings, which are not ours to mend.
                warnings.simplefilter("ignore")
                self._trees[path] = ast.parse(self.archive.read(path))
        return self._trees[path]

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Found | None:
        """What `module.name` is, imports followed inside the wheel; None where the module has no such name."""
        path = self.path_of(module)
        if not path or (module, name) in seen:
            return None
        seen |= {(module, name)}
        for statement in _top_level(self.tree(path).body):
            found = self._in_statement(statement, module, name, seen)
            if found is not None:
                return found
        return Found() if self.has_module(f"{module}.{name}") else None

    def _in_statement(
        self, statement: ast.stmt, module: str, name: str, seen: frozenset[tuple[str, str]]
    ) -> Found | None:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name == name:
            return Found(statement)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            return Found() if name in names else None
        if isinstance(statement, ast.Import):
            names = {(alias.asname or alias.name.partition(".")[0]) for alias in statement.names}
            return Found() if name in names else None
        if isinstance(statement, ast.ImportFrom):
            return self._in_import(statement, module, name, seen)
        return None

    def _in_import(
        self, statement: ast.ImportFrom, module: str, name: str, seen: frozenset[tuple[str, str]]
    ) -> Found | None:
        source = self._source_of(statement, module)
        for alias in statement.names:
            if alias.name == "*":
                found = self.find(source, name, seen)
                if found is not None:
                    return found
            elif (alias.asname or alias.name) == name:
                # What another package or a compiled module defines is there if the import works.
                return self.find(source, alias.name, seen) if self.path_of(source) else Found()
        return None

    def _source_of(self, statement: ast.ImportFrom, module: str) -> str:
        if not statement.level:
            return statement.module or ""
        package = module.split(".") if self.path_of(module).endswith("/__init__.py") else module.split(".")[:-1]
        base = package[: len(package) - statement.level + 1]
        return ".".join([*base, statement.module] if statement.module else base)

    def says(self, pattern: str) -> bool:
        """Whether some source file holds the regular expression."""
        return any(re.search(pattern, self.archive.read(path).decode()) for path in self.files if path.endswith(".py"))

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every string constant of the source but docstrings: a variable that is read is one of them."""
        found: set[str] = set()
        for path in self.files:
            if path.endswith(".py"):
                found |= self._texts_of(path)
        return frozenset(found)

    def _texts_of(self, path: str) -> set[str]:
        try:
            return set(_constants(self.tree(path)))
        except SyntaxError:
            # torch-npu ships templates of code as .py files.
            return set(re.findall(r"""["'](\w+)["']""", self.archive.read(path).decode()))

    def in_libraries(self, names: Iterable[str]) -> set[str]:
        """Those of the names that stand in a compiled library, as whole words."""
        wanted = set(names)
        found: set[str] = set()
        for path in self.files:
            if re.search(r"\.so(\.\d+)*$", path):
                content = self.archive.read(path)
                found |= {name for name in wanted - found if _has_word(content, name.encode())}
        return found

    def readers(self, names: Iterable[str]) -> set[str]:
        """Those of the names that source or libraries hold as text, which who reads a variable must."""
        names = set(names)
        in_source = names & self.texts
        return in_source | self.in_libraries(names - in_source)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.Try):
            yield from _top_level([*statement.body, *statement.orelse, *statement.finalbody])
            for handler in statement.handlers:
                yield from _top_level(handler.body)
        elif isinstance(statement, ast.If):
            yield from _top_level([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.With):
            yield from _top_level(statement.body)


def _constants(tree: ast.Module) -> Iterator[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _has_word(content: bytes, word: bytes) -> bool:
    """Whether the word stands there with nothing that could belong to a name before and after it."""
    start = content.find(word)
    while start >= 0:
        around = content[max(0, start - 1) : start] + content[start + len(word) : start + len(word) + 1]
        if not re.search(rb"\w", around):
            return True
        start = content.find(word, start + 1)
    return False
