"""`roll plugins`: what is installed, what each plugin brings, and what is wrong with those that failed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from roll_core.backend import NOUN_OF_KIND
from roll_core.plugins import PluginRecord, Registry, load_plugins
from roll_core.resolve.backend import Resolved

HEADINGS = ("PLUGIN", "PACKAGE", "VERSION", "STATE", "BRINGS")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plugins")(show)


def show(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Also show targets, probes and tracebacks."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List plugins; exits 1 when one of them failed to load, or brings something whose class is not there."""
    from roll_core.doctor.installed import missing_targets

    registry = load_plugins()
    missing = {record.dist: missing_targets(record) for record in registry.records if record.state == "loaded"}
    if as_json:
        print(json.dumps([_as_data(record, missing, verbose) for record in registry.records], indent=2))
    else:
        print("\n".join(_report(registry, missing, verbose)))
    if any(missing.values()) or any(record.state == "failed" for record in registry.records):
        raise typer.Exit(1)


def _report(registry: Registry, missing: Mapping[str, Sequence[str]], verbose: bool) -> Iterator[str]:
    rows = [(one.name, one.dist, one.version, one.state, _brings(one)) for one in registry.records]
    widths = [max(len(row[column]) for row in [HEADINGS, *rows]) for column in range(len(HEADINGS))]
    yield _line(HEADINGS, widths)
    for record, row in zip(registry.records, rows):
        yield _line(row, widths)
        if record.problem:
            yield f"  {record.problem}"
        yield from (f"  {problem}" for problem in missing.get(record.dist, ()))
        if verbose:
            yield from _details(record)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()


def _brings(record: PluginRecord) -> str:
    parts = [
        f"{NOUN_OF_KIND[kind]} {', '.join(dict.fromkeys(backend.name for backend in backends))}"
        for kind, backends in record.backends.items()
        if backends
    ]
    return "; ".join(parts) or ("nothing" if record.state == "loaded" else "")


def _details(record: PluginRecord) -> Iterator[str]:
    for resolved in _offers(record):
        backend, here = resolved.backend, resolved.availability()
        only = f" on {', '.join(backend.platforms)}" if backend.platforms else ""
        yield f"  {NOUN_OF_KIND[resolved.kind]} {backend.name}{only}: {backend.summary or 'no summary'}"
        yield f"    target {backend.target}"
        yield f"    {'usable' if here.ok else 'not usable'} here: {here.reason}"
    yield from (f"    {line}" for line in record.traceback.splitlines())


def _offers(record: PluginRecord) -> Iterator[Resolved]:
    for kind, backends in record.backends.items():
        for backend in backends:
            yield Resolved(kind, record, backend)


def _as_data(record: PluginRecord, missing: Mapping[str, Sequence[str]], verbose: bool) -> dict[str, Any]:
    backends = []
    for resolved in _offers(record):
        backend = resolved.backend
        data: dict[str, Any] = {
            "kind": resolved.kind,
            "name": backend.name,
            "target": backend.target,
            "summary": backend.summary,
            "platforms": list(backend.platforms),
            "priority": backend.priority,
        }
        if verbose:
            here = resolved.availability()
            data["available"], data["reason"] = here.ok, here.reason
        backends.append(data)
    data = {
        "name": record.name,
        "dist": record.dist,
        "version": record.version,
        "state": record.state,
        "problem": record.problem,
        "missing": list(missing.get(record.dist, ())),
        "backends": backends,
    }
    return data | {"traceback": record.traceback} if verbose else data
