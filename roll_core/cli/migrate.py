"""`roll migrate`: a config written for one platform, made one for another, with every change told."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(
    config: Annotated[str, typer.Argument(help="A YAML file; relative to here or to examples/.")],
    to: Annotated[str, typer.Option("--to", help="The platform that the config is for afterwards.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A new file, in place of the terminal.")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Change the file itself.")] = False,
) -> None:
    """Print the config for another platform; what was changed and why goes to standard error. Exits 2 where there is
    no such platform, or `roll check --platform` still finds problems in the result."""
    from roll_core.cli.migrate_report import print_migration
    from roll_core.cli.platform_option import known_platform
    from roll_core.config.locate import find_file
    from roll_core.errors import RollError
    from roll_core.migrate.checking import problems_of_text
    from roll_core.migrate.config import migrate_file
    from roll_core.plugins import load_plugins

    if output is not None and in_place:
        raise RollError("--output and --in-place were both given\n  try: one of them")
    path = find_file(config)
    if output is not None and output.exists():
        raise RollError(f"{output} is there already, and nothing is overwritten\n  try: another file, or --in-place")
    target = path if in_place else output
    if target is not None and not os.access(target.parent, os.W_OK):
        lack = "cannot be written to" if target.parent.is_dir() else "is no folder"
        raise RollError(f"{target} cannot be written\n  its folder {target.parent.resolve()} {lack}")
    registry = load_plugins()
    migrated = migrate_file(path, known_platform(registry, to), registry)
    problems = problems_of_text(migrated.text, path, to, registry)
    if target is None:
        sys.stdout.write(migrated.text)
        sys.stdout.flush()
    elif migrated.changes or not in_place:
        _write(target, migrated.text)
    print_migration(migrated, problems, str(path), to, None if target is None else str(target))
    if problems:
        raise typer.Exit(2)


def _write(target: Path, text: str) -> None:
    """Write a whole file or none: a full disk must not leave half a config in the place of a good one."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        part.chmod((target.stat().st_mode if target.exists() else 0o644) & 0o777)
        # Where the file is a link, its target changes and the link stays.
        part.replace(target.resolve())
    except BaseException:
        part.unlink()
        raise
