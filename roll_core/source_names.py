"""Which names a Python file has for others, told by its text: nothing of it is run."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

# A file that uses one of these may have names that its text does not show.
_MAKES_NAMES = frozenset({"exec", "globals", "setattr", "vars", "__getattr__"})


def name_problem(path: Path, name: str, what: str) -> str | None:
    """What keeps a name from being found in a file, as far as its text tells; None if nothing does.

    `what` says for what it is looked up, such as "reward './mine.py:score'".
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        return f"{path} for {what} is no Python: {error}"
    except OSError as error:
        return f"{path} for {what} cannot be read: {error.strerror}"
    names = list(dict.fromkeys(_bound(tree.body)))
    if name in names or "*" in names or _makes_names(tree):
        return None
    imported = set(_bound([node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]))
    own = [one for one in names if not one.startswith("_") and one not in imported]
    close = difflib.get_close_matches(name, own, n=1, cutoff=0.6)
    hint = f"\n  did you mean '{close[0]}'?" if close else ""
    return f"no '{name}' in {path} for {what}\n  it has: {', '.join(own) or 'no names'}{hint}"


def _makes_names(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _MAKES_NAMES:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _MAKES_NAMES:
            return True
        if isinstance(node, ast.Global | ast.NamedExpr):
            return True
    return False


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements bind, those inside `if`, `try`, `with`, `match` and loops included."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0]
        else:
            for node in ast.iter_child_nodes(statement):
                yield from _bound_by(node)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.stmt):
        yield from _bound([node])
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for child in ast.iter_child_nodes(node):
            yield from _bound_by(child)
