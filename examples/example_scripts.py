"""What the examples' scripts have in common: options of prepare.py and of run.py, the run, and its last line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roll_core.pipelines.start import Outcome


def prepare_options(description: str, folder: Path, steps: int) -> argparse.ArgumentParser:
    """Options of a prepare.py, with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=folder)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=steps, help="steps of the warm start")
    return parser


def run_options(description: str, config: Path) -> argparse.ArgumentParser:
    """Options of a run.py."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0, help="of the model's first weights and of all sampling")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=f"keys of {config.name} to change")
    return parser


def run(config: Path, overrides: Sequence[str]) -> Outcome:
    """Run a config. A problem ends the program with the exit code and the message that `roll run` gives."""
    from roll_core.errors import told_to_users
    from roll_core.pipelines.run import run_file

    with told_to_users():
        return run_file(config, overrides)


def print_result(outcome: Outcome, started: float) -> None:
    """The last line, for programs. `started` is what `time.monotonic()` said when the script began."""
    before, after = outcome.first_accuracy or 0.0, outcome.last_accuracy or 0.0
    print(f"RESULT before={before:.2f} after={after:.2f} seconds={time.monotonic() - started:.0f}")
