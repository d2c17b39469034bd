"""Device numbers as a config writes them: a YAML list, or a small expression that is parsed and never evaluated."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

GRAMMAR = (
    "a YAML list such as [0, 1, 2], or an expression of range(stop), range(start, stop[, step]), list(...), [..] "
    "and +, such as list(range(0, 8)) + [12]"
)

_LARGEST_RANGE = 1_000_000


class DeviceMappingError(ValueError):
    """A device_mapping that does not name devices; the message shows what is allowed."""


def parse_device_mapping(given: Any) -> list[int]:
    """The device numbers, in the order written. Worker k of a role gets the k-th slice of them.

    Raises:
        DeviceMappingError: outside the grammar, empty, a negative number, or a device named twice.
    """
    devices = _parse(given) if isinstance(given, str) else _plain(given)
    if not devices:
        raise DeviceMappingError("no device is named; leave device_mapping out for a role without devices")
    negative = [device for device in devices if device < 0]
    if negative:
        raise DeviceMappingError(f"device numbers start at 0, {negative[0]} is negative")
    twice = sorted(device for device, times in Counter(devices).items() if times > 1)
    if twice:
        raise DeviceMappingError(f"named more than once: {', '.join(map(str, twice))}")
    return devices


def _plain(given: Any) -> list[int]:
    if isinstance(given, bool) or not isinstance(given, int | list | tuple):
        raise DeviceMappingError(f"{type(given).__name__} is no list of device numbers; write {GRAMMAR}")
    items = [given] if isinstance(given, int) else list(given)
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int):
            raise DeviceMappingError(f"{item!r} is no device number; write {GRAMMAR}")
    return items


def _parse(text: str) -> list[int]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DeviceMappingError(f"cannot read {text!r}; write {GRAMMAR}") from None
    devices = _sequence(tree.body, text)
    return devices if isinstance(devices, list) else list(devices)


def _sequence(node: ast.expr, text: str) -> list[int] | range:
    if isinstance(node, ast.List | ast.Tuple):
        return [_number(item, text) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_sequence(node.left, text), *_sequence(node.right, text)]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _sequence(node.args[0], text)
        if node.func.id == "range" and 1 <= len(node.args) <= 3:
            return _range([_number(item, text) for item in node.args], text)
    raise DeviceMappingError(f"{ast.unparse(node)!r} in {text!r} is not allowed; write {GRAMMAR}")


def _range(bounds: list[int], text: str) -> range:
    if len(bounds) == 3 and bounds[2] == 0:
        raise DeviceMappingError(f"the step of a range in {text!r} is 0")
    if max(map(abs, bounds)) > _LARGEST_RANGE:
        raise DeviceMappingError(f"{text!r} names more devices than any cluster has")
    return range(*bounds)


def _number(node: ast.expr, text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, text)
    raise DeviceMappingError(f"{ast.unparse(node)!r} in {text!r} is no whole number; write {GRAMMAR}")
