"""The files that a run writes to `rollout_dump_dir`: found, and read from the newest on.

`step-000001.jsonl` holds the rows that a step trained on, `episodes-000001.jsonl` the episodes they came from, and
`val-000001.jsonl` what a validation saw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roll_core.errors import DataError
from roll_core.show.records import Kind, Rollout, read_rollout

_NAME = re.compile(r"(step|episodes|val)-(\d+)\.jsonl")


@dataclass(frozen=True)
class Dump:
    """The files of one step, or of one validation."""

    kind: Kind
    step: int
    files: tuple[Path, ...]


@dataclass
class Found:
    """Rollouts, newest step first; how many more there are, and which lines could not be read."""

    rollouts: list[Rollout] = field(default_factory=list)
    num_dumps: int = 0
    num_unread_dumps: int = 0
    is_cut: bool = False
    problems: list[str] = field(default_factory=list)


def find_dumps(place: Path) -> list[Dump]:
    """The dumps in a folder, or in the one folder within it that has any; or a file's. Newest step first.

    Raises:
        DataError: there are none, or several folders have some.
    """
    try:
        is_file, is_folder = place.is_file(), place.is_dir()
        # A folder that may not be read would look like an empty one.
        next(place.iterdir() if is_folder else iter(()), None)
    except OSError as error:
        raise unreadable(place, error) from error
    if is_file:
        named = _NAME.fullmatch(place.name)
        kind: Kind = "validation" if named and named[1] == "val" else "train"
        return [Dump(kind, int(named[2]) if named else 0, (place,))]
    if not is_folder:
        raise DataError(f"no file or folder '{place}'\n  looked at: {place.absolute()}")
    folders = [folder for folder in (place, *sorted(place.glob("*/"))) if any(_named(folder))]
    if not folders:
        raise DataError(
            f"no rollouts in '{place}'\n"
            "  looked for: step-*.jsonl, episodes-*.jsonl and val-*.jsonl, there and one folder below\n"
            "  try: the folder that rollout_dump_dir of the run's config names; without that key none are written"
        )
    if len(folders) > 1 and folders[0] != place:
        listed = "\n".join(f"    {folder}" for folder in folders)
        raise DataError(f"rollouts of several runs are in '{place}'\n{listed}\n  try: one of these")
    by_step: dict[tuple[int, Kind], list[Path]] = {}
    for path, named in _named(folders[0]):
        by_step.setdefault((int(named[2]), "validation" if named[1] == "val" else "train"), []).append(path)
    # Where there are both, episodes- sorts before step-, whose rows are put to their episodes.
    return [Dump(kind, step, tuple(sorted(files))) for (step, kind), files in sorted(by_step.items(), reverse=True)]


def read_dumps(dumps: Sequence[Dump], is_wanted: Callable[[Rollout], bool], most: int) -> Found:
    """At most `most` wanted rollouts; older dumps are left unread once there are so many."""
    found = Found(num_dumps=len(dumps))
    for number, dump in enumerate(dumps):
        if len(found.rollouts) >= most:
            found.num_unread_dumps = len(dumps) - number
            break
        wanted = [rollout for rollout in _rollouts(dump, found.problems) if is_wanted(rollout)]
        room = most - len(found.rollouts)
        found.rollouts += wanted[:room]
        found.is_cut = found.is_cut or len(wanted) > room
    return found


def unreadable(place: Path, error: OSError) -> DataError:
    """The message for a file or folder that may not be read."""
    return DataError(f"'{place}' cannot be read: {error.strerror or error}\n  try: a place that you may read")


def _named(folder: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for path in folder.glob("*.jsonl"):
        named = _NAME.fullmatch(path.name)
        if named:
            yield path, named


def _rollouts(dump: Dump, problems: list[str]) -> list[Rollout]:
    """A dump's rollouts in the order of the files; rows of an episode give it their tokens and are none themselves."""
    found: dict[str, Rollout] = {}
    for path in dump.files:
        is_rows = len(dump.files) > 1 and path.name.startswith("step-")
        for rollout in _lines(path, dump, problems):
            # A row's id is that of its trajectory with the row's number behind it.
            owner = rollout.id.rpartition("_")[0] if is_rows else ""
            if owner in found:
                found[owner] = replace(found[owner], tokens=found[owner].tokens + rollout.tokens)
            else:
                # Ids are unique within a prompt's answers only, so the place in the file makes them so.
                found[rollout.id if rollout.id not in found else f"{rollout.id} {len(found)}"] = rollout
    return list(found.values())


def _lines(path: Path, dump: Dump, problems: list[str]) -> Iterator[Rollout]:
    try:
        lines = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield read_rollout(line, dump.kind, dump.step)
            except ValueError as error:
                problems.append(f"{path}:{number}: {error}")
