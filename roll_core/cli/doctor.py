"""`roll doctor`: what is right and wrong on this machine, and what an error means."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from roll_core.doctor.explain import Answer
    from roll_core.doctor.report import Report
    from roll_core.plugins import Registry

_MARKS = ("ok", "warning", "ERROR")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    platform: Annotated[str | None, typer.Option(help="Look at this platform, with or without its device.")] = None,
    explain: Annotated[str | None, typer.Option(metavar="TEXT", help="Explain this error; - reads stdin.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at this machine; exits 0 where all is well, 1 with warnings, 2 with errors.

    With --explain, tell cause and remedy of an error; exits 0 where it is known, 1 where it is not, 2 without a text.
    """
    from roll_core.cli.platform_option import known_platform
    from roll_core.plugins import load_plugins

    registry = load_plugins()
    if platform is not None:
        platform = known_platform(registry, platform)
    if explain is not None:
        code = _explain(_text(explain), registry, platform, as_json)
    else:
        from roll_core.doctor.examine import examine

        report = examine(registry, os.environ, platform)
        print(json.dumps(report.as_data(), indent=2) if as_json else "\n".join(_lines(report)))
        code = int(report.level)
    if code:
        raise typer.Exit(code)


def _lines(report: Report) -> Iterator[str]:
    from roll_core.findings import Level

    for section in report.sections:
        yield section.title
        for finding in section.findings:
            yield f"  {_MARKS[finding.level]:7}  {finding.subject}: {finding.found}"
            if finding.remedy:
                yield f"           do: {finding.remedy}"
    errors, warnings = report.count(Level.ERROR), report.count(Level.WARNING)
    yield f"{errors} error{_s(errors)}, {warnings} warning{_s(warnings)}" if errors or warnings else "all is well"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _text(given: str) -> str:
    from roll_core.errors import RollError

    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        error = RollError(
            "no error text to explain"
            "\n  try: roll doctor --explain 'the last lines', or `... 2>&1 | roll doctor --explain -`"
        )
        error.exit_code = 2
        raise error
    return text


def _explain(text: str, registry: Registry, platform: str | None, as_json: bool) -> int:
    from roll_core.doctor.explain import explain

    answer = explain(text, registry, platform)
    if as_json:
        from dataclasses import asdict

        print(json.dumps(asdict(answer), indent=2))
    else:
        print("\n".join(_told(answer)))
    return 0 if answer.explanations else 1


def _told(answer: Answer) -> Iterator[str]:
    for one in answer.explanations:
        yield f"cause: {one.cause}"
        yield f"do:    {one.remedy}"
        yield f"known to {one.source}"
        yield ""
    if not answer.explanations:
        yield "nothing is known about this error"
        yield "  try: more of the text (the first error of the log, not the last), --platform for the device's own list"
        yield "       or `roll doctor` to look at the machine"
    yield from answer.unasked
