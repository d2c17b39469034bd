"""The `roll` command. Each sub-command is a module of this folder with a function `register(app)`.

These modules are imported for every call, `roll --help` included, so at their top they import the standard
library, typer and light parts of roll_core only; everything else is imported in the command's function.
"""

from __future__ import annotations

import importlib

import typer

from roll_core._version import __version__
from roll_core.errors import told_to_users

COMMANDS = ("run", "check", "show", "migrate", "doctor", "score", "plugins")
"""Modules of this folder, in the order that `roll --help` shows them."""


def build_app() -> typer.Typer:
    """The command line with all its sub-commands."""
    # Rich help and rich tracebacks cost more start-up time than `roll plugins` itself.
    app = typer.Typer(
        name="roll",
        help="RL post-training for large language models on any accelerator.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for command in COMMANDS:
        importlib.import_module(f"roll_core.cli.{command}").register(app)
    return app


def main() -> None:
    """Run the command line; errors for users exit with a code of their own, anything else is a traceback."""
    with told_to_users():
        build_app()(prog_name="roll")


def _options(
    version: bool = typer.Option(False, "--version", callback=lambda asked: _show_version(asked), is_eager=True),
) -> None:
    """RL post-training for large language models on any accelerator."""


def _show_version(asked: bool) -> None:
    if asked:
        print(f"roll-core {__version__}")
        raise typer.Exit
