"""Data files of one JSON object per line, checked row by row before anything starts. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roll_core.data.messages import BadField, kind_of
from roll_core.data.rows import Columns, Row, problem_at, read_row
from roll_core.data.tags import nearest, tag_routes
from roll_core.errors import DataError, Problem

__all__ = ["Columns", "Row", "find_file", "load_rows", "read_files", "tag_routes"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def load_rows(
    file_names: str | Sequence[str],
    dataset_dir: str = "",
    tag_to_domain: Mapping[str, str] | None = None,
    columns: Columns | None = None,
    limit: int = 20,
) -> list[Row]:
    """All rows of the files, in order.

    Args:
        file_names: a file or several; each is looked for as given, then under `dataset_dir`.
        tag_to_domain: which reward grades a tag, see `tag_routes`.
        limit: how many problems the message shows.

    Raises:
        DataError: with every problem found, each naming file, line and field.
    """
    reading = _read(file_names, dataset_dir, tag_to_domain or {}, columns or Columns())
    if reading.problems:
        raise DataError(describe(reading.problems, limit))
    return reading.rows


def read_files(
    file_names: str | Sequence[str],
    dataset_dir: str = "",
    tag_to_domain: Mapping[str, str] | None = None,
    columns: Columns | None = None,
) -> tuple[list[Row], list[Problem]]:
    """The rows that can be used, and every problem with the others."""
    reading = _read(file_names, dataset_dir, tag_to_domain or {}, columns or Columns())
    return reading.rows, reading.problems


def describe(problems: Sequence[Problem], limit: int = 20) -> str:
    """The message for some problems: how many, the first `limit` of them, and how many were left out."""
    count = len(problems)
    lines = [f"{count} problem{'s' if count != 1 else ''} in the data"]
    lines += [f"- {problem}" for problem in problems[:limit]]
    if count > limit:
        lines.append(f"- and {count - limit} more")
    return "\n".join(lines)


def find_file(name: str, dataset_dir: str = "") -> Path:
    """The file that a config means: `name` as given, else under `dataset_dir`.

    Raises:
        DataError: neither is a file; the message lists where it was looked for and what is there.
    """
    tried = [Path(name).expanduser()]
    if dataset_dir and not tried[0].is_absolute():
        tried.append(Path(dataset_dir).expanduser() / name)
    for path in tried:
        if path.is_file():
            return path
    for path in tried:
        if path.is_dir():
            inside = sorted(found.name for found in path.glob("*.json*"))
            raise DataError(f"{path} is a folder; name files, such as: {', '.join(inside[:5]) or '(no *.jsonl there)'}")
    beside = {found.name: found for path in tried if path.parent.is_dir() for found in path.parent.iterdir()}
    close = nearest(Path(name).name, list(beside))
    hint = f"; did you mean {beside[close]}?" if close else ""
    raise DataError(f"no such file; looked for {' and '.join(str(path) for path in tried)}{hint}")


@dataclass
class _Reading:
    """What has been read so far; `seen` maps an id to the place of its first row."""

    rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)

    def note(self, file: str, line: int, name: str, bad: BadField) -> None:
        self.problems.append(problem_at(file, line, name, bad))


def _read(file_names: str | Sequence[str], dataset_dir: str, routes: Mapping[str, str], columns: Columns) -> _Reading:
    names = [file_names] if isinstance(file_names, str) else list(file_names)
    reading = _Reading()
    if not names:
        reading.problems.append(Problem("", "no data file is named", hint="set data_args.file_name"))
    paths: list[Path] = []
    for name in names:
        try:
            path = find_file(name, dataset_dir)
        except DataError as error:
            reading.problems.append(Problem(name, str(error)))
            continue
        if any(path.samefile(other) for other in paths):
            reading.problems.append(Problem(name, "the file is listed twice", hint="list it once"))
            continue
        paths.append(path)
        _read_file(path, routes, columns, reading)
    return reading


def _read_file(path: Path, routes: Mapping[str, str], columns: Columns, reading: _Reading) -> None:
    file = str(path)
    is_empty = True
    for line, raw in _lines(path):
        is_empty = False
        try:
            record = _parse(raw)
        except BadField as bad:
            reading.note(file, line, "", bad)
            if bad.where == "file":
                return
            continue
        row, problems = read_row(record, routes, columns, file, line)
        reading.problems += problems
        id_value = record.get(columns.id)
        if isinstance(id_value, str | int):
            first = reading.seen.setdefault(str(id_value), f"{file}:{line}")
            if first != f"{file}:{line}":
                hint = 'ids are compared as text, so 1 and "1" are the same; make them unique over all files'
                reading.note(file, line, columns.id, BadField("", f"is already used at {first}", id_value, hint))
        if row is not None:
            reading.rows.append(row)
    if is_empty:
        reading.problems.append(Problem(file, "the file holds no rows", hint="write one JSON object per line"))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line numbers and lines that are not blank. Only line feeds end a line: JSON text may hold other separators."""
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            raw = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
            if raw.strip():
                yield number, raw


def _parse(raw: bytes) -> dict[str, Any]:
    if raw.startswith(_UTF_16_MARKS):
        raise BadField("file", "the file is UTF-16", None, "save it as UTF-8")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
        raise BadField("", rule, None, "save the file as UTF-8") from None
    try:
        record = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        hint = "write one JSON object per line, each on a line of its own" if text.strip() in "{[" else ""
        raise BadField("", f"is not JSON: {error}", text.strip(), hint) from None
    if isinstance(record, list):
        hint = "write one object per line, without the brackets and commas of a JSON array"
        raise BadField("file", "must be one JSON object, found a list", record, hint)
    if not isinstance(record, dict):
        raise BadField("", f"must be one JSON object, found {kind_of(record)}", record)
    return record


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large for a number; write it as text")
    return number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise ValueError(f"key given twice: {', '.join(twice)}")
    return record
