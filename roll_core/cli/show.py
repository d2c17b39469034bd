"""`roll show`: the rollouts of a run, on the terminal and as an HTML page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from roll_core.show.dumps import Dump, Found
    from roll_core.show.records import Rollout

_PROBLEMS_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    run: Annotated[Path, typer.Argument(help="A config with rollout_dump_dir, that folder, or a file of it.")],
    step: Annotated[int | None, typer.Option(min=0, help="Only this step.")] = None,
    kind: Annotated[
        str | None, typer.Option("--from", help="Only what was trained on, or seen in validations.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only this tag.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Only scores from this on.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Only scores up to this.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rollouts to print.")] = 3,
    most: Annotated[int, typer.Option(min=1, help="Rollouts of the page, from the newest step on.")] = 1000,
    html: Annotated[Path | None, typer.Option(help="The page to write; by default rollouts.html beside them.")] = None,
) -> None:
    """Print rollouts, newest step first, and write a page with turns, rewards and advantages to look through.

    The page is one file that any browser opens, without a server and without a network.
    """
    from roll_core.display.plain import printable
    from roll_core.errors import DataError
    from roll_core.show.lines import rollout_lines
    from roll_core.show.page import page

    try:
        dumps, found = _found(run, step, kind, _filter(tag, min_score, max_score), most)
    except DataError as error:
        # Nothing to show is a mistake in what was asked, as in `roll check`; 1 is for a page that cannot be written.
        error.exit_code = 2
        raise
    for problem in found.problems[:_PROBLEMS_SHOWN]:
        print(problem, file=sys.stderr)
    if len(found.problems) > _PROBLEMS_SHOWN:
        print(f"{len(found.problems)} lines could not be read", file=sys.stderr)
    for rollout in found.rollouts[:limit]:
        print(*(printable(line, sys.stdout.encoding) for line in rollout_lines(rollout)), sep="\n", end="\n\n")
    note = _note(found)
    target = html or dumps[0].files[0].parent / "rollouts.html"
    try:
        target.write_text(page(found.rollouts, f"rollouts of {run}", note), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{target} could not be written: {error.strerror or error}\n  try: --html FILE") from error
    print(f"{note}\npage: {target}")


def _found(
    run: Path, step: int | None, kind: str | None, is_wanted: Callable[[Rollout], bool], most: int
) -> tuple[list[Dump], Found]:
    from roll_core.errors import DataError
    from roll_core.show.dumps import find_dumps, read_dumps

    if kind not in (None, "train", "validation"):
        raise DataError(f"--from is train or validation, not '{kind}'")
    place = _dump_dir(run)
    dumps = [dump for dump in find_dumps(place) if step in (None, dump.step) and kind in (None, dump.kind)]
    found = read_dumps(dumps, is_wanted, most)
    if not found.rollouts and found.problems:
        count = len(found.problems)
        raise DataError(
            f"no rollout in '{place}': {count} line{'s' if count > 1 else ''} could not be read\n"
            f"  the first: {found.problems[0]}\n  try: what a run wrote to rollout_dump_dir"
        )
    if not found.rollouts:
        raise DataError(f"no rollout in '{place}' is among those that were asked for")
    return dumps, found


def _dump_dir(run: Path) -> Path:
    """Where a run's rollouts are; a config says it."""
    from roll_core.config.compose import read_config
    from roll_core.config.locate import find_file
    from roll_core.config.pipeline import BaseConfig
    from roll_core.config.runnable import require_read
    from roll_core.errors import DataError

    if _is_folder(run) or run.suffix not in (".yaml", ".yml"):
        return run
    from roll_core.plugins import load_plugins

    config: BaseConfig = require_read(read_config(find_file(run), ()), load_plugins())
    if not config.rollout_dump_dir:
        raise DataError(
            f"{run} does not set rollout_dump_dir, so its runs write no rollouts\n"
            "  try: roll run with rollout_dump_dir=./rollouts, or give the folder itself"
        )
    return Path(config.rollout_dump_dir)


def _is_folder(run: Path) -> bool:
    from roll_core.show.dumps import unreadable

    try:
        return run.is_dir()
    except OSError as error:
        raise unreadable(run, error) from error


def _filter(tag: str | None, min_score: float | None, max_score: float | None) -> Callable[[Rollout], bool]:
    def is_wanted(rollout: Rollout) -> bool:
        if tag is not None and rollout.tag != tag:
            return False
        if rollout.score is None:
            return min_score is None and max_score is None
        return (min_score is None or rollout.score >= min_score) and (max_score is None or rollout.score <= max_score)

    return is_wanted


def _note(found: Found) -> str:
    steps = sorted({rollout.step for rollout in found.rollouts})
    of = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    count = len(found.rollouts)
    said = f"{count} rollout{'s' if count != 1 else ''} of {of}"
    if found.is_cut or found.num_unread_dumps:
        said += "; there are more, which --most, --step, --min-score and --max-score lead to"
    return said
