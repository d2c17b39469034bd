"""`roll run`: run a config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(run)


def run(
    config: Annotated[Path, typer.Argument(help="A YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, dotted keys, as many as you like.")] = None,
) -> None:
    """Run a config; what is wrong with it is said before anything starts."""
    from roll_core.pipelines.run import run_file

    run_file(config, overrides or ())
