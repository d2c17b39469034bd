"""What our source uses of other packages, collected from its syntax trees: nothing here is a list kept by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CORE = REPOSITORY / "roll_core"
ASCEND = REPOSITORY / "plugins" / "roll_ascend" / "roll_ascend"
CUDA = REPOSITORY / "plugins" / "roll_cuda" / "roll_cuda"


@dataclass(frozen=True)
class Use:
    """A name of a module in our source; `call` holds the positional count and the keywords where it is called."""

    name: str
    where: str
    call: tuple[int, tuple[str, ...]] | None = None


def device_module_uses(*folders: Path) -> list[Use]:
    """Everything that is taken from `platform.torch`, torch's module of a device, directly or through a local name."""
    return [use for path in _files(*folders) for use in _uses_in(path)]


def dotted_uses(package: str, *folders: Path) -> list[Use]:
    """Dotted names that begin with `package`, such as torch.npu.device_count, in code and in code held as text."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(package)}((?:\.[A-Za-z_]\w*)+)")
    found = []
    for path in _files(*folders):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(f"{package}."):
                found.append(Use(ast.unparse(node).removeprefix(f"{package}."), _place(path, node)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [Use(match[1][1:], _place(path, node)) for match in pattern.finditer(node.value)]
    return found


def imported_modules(prefix: str, *folders: Path) -> list[Use]:
    """Modules that begin with `prefix` and are imported, by a statement, by `import_module`, or looked for by name."""
    found = []
    for path in _files(*folders):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Call) and _last(node.func) in ("import_module", "find_spec", "package_folder"):
                names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            found += [Use(name, _place(path, node)) for name in names if name.partition(".")[0] == prefix]
    return found


def _uses_in(path: Path) -> Iterator[Use]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for function in (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))):
        aliases = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and _is_device_module(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute):
                continue
            is_alias = isinstance(node.value, ast.Name) and node.value.id in aliases
            if is_alias or _is_device_module(node.value):
                call = calls.get(id(node))
                shape = None if call is None else (len(call.args), tuple(one.arg or "" for one in call.keywords))
                yield Use(node.attr, _place(path, node), shape)


def _is_device_module(node: ast.expr) -> bool:
    """Whether this is `platform.torch`, `self.platform.torch`, or `self.torch` in a platform."""
    return isinstance(node, ast.Attribute) and node.attr == "torch" and _last(node.value) in ("platform", "self")


def _last(node: ast.expr) -> str:
    return node.attr.lstrip("_") if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def _place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 0)}"
