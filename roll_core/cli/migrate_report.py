"""What `roll migrate` tells on standard error: changes with their reasons, what is left, and whether it passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roll_core.errors import Problem
    from roll_core.migrate.config import Migrated
    from roll_core.migrate.draft import Change

_WIDEST = 48
_PIPE_WIDTH = 160


def print_migration(
    migrated: Migrated, problems: Sequence[Problem], source: str, platform: str, target: str | None
) -> None:
    """Print the report. `target` is the file that was written, None where the config went to standard output."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=True, highlight=False, width=_PIPE_WIDTH)
    count = len(migrated.changes)
    if not count:
        console.print(Text(f"{source} needs no change for platform {platform}"))
    else:
        console.print(Text(f"{count} change{'s' if count > 1 else ''} in {source} for platform {platform}"))
        for section, changes in _by_section(migrated.changes).items():
            console.print(Text(section or "the config"), style="bold")
            console.print(_changes(changes))
    if migrated.left:
        console.print(Text("\nleft for you"))
        for one in migrated.left:
            console.print(Text(f"  {one.path}: {one.what}"))
    if problems:
        console.print(Text(f"\n`roll check --platform {platform}` still finds {len(problems)}"))
        for problem in problems:
            console.print(Text(f"- {problem}"))
    else:
        console.print(Text(f"\n`roll check --platform {platform}` finds no problem in the result"))
    if target is not None:
        console.print(Text(f"written: {target}" if count else f"{target}: as it was"))


def _by_section(changes: Sequence[Change]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.path.rpartition(".")[0], []).append(change)
    return found


def _changes(changes: Sequence[Change]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), show_edge=False, show_header=False)
    for _ in ("key", "was", "is", "why"):
        table.add_column(overflow="fold")
    for one in changes:
        key = one.path.rpartition(".")[2]
        table.add_row(*map(Text, (key, _short(one.before), f"-> {_short(one.after)}", one.reason)))
    return table


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 4]} ..."
