"""Python and the packages that roll-core and the plugins need, in the versions they were written for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata

from roll_core.findings import Finding, Level
from roll_core.plugins import CORE_DIST, Registry, same_name

_IMPORT_TIMEOUT_S = 120.0


def python_findings() -> Iterator[Finding]:
    """The Python that runs, against what roll-core's metadata asks for."""
    from packaging.specifiers import SpecifierSet

    running = ".".join(map(str, sys.version_info[:3]))
    wanted = _metadata(CORE_DIST, "Requires-Python")
    if wanted and running not in SpecifierSet(wanted):
        remedy = f"a Python {wanted}, in an environment of its own"
        yield Finding(Level.ERROR, "Python", f"{running} at {sys.executable}; {CORE_DIST} needs {wanted}", remedy)
    else:
        yield Finding(Level.OK, "Python", f"{running} at {sys.executable}")


def requirement_findings(registry: Registry) -> Iterator[Finding]:
    """What each of our distributions requires, and what is installed; extras are left out."""
    dists = dict.fromkeys([CORE_DIST, *(record.dist for record in registry.records if record.dist)])
    for dist in dists:
        yield from _requirements(dist)


def torch_findings() -> Iterator[Finding]:
    """Whether torch can be imported. Another interpreter does it: an import that crashes must not end the report."""
    yield import_finding("torch", "import torch; print(torch.__version__)", "pip install --force-reinstall torch")


def import_finding(subject: str, code: str, remedy: str, environ: dict[str, str] | None = None) -> Finding:
    """Run code in a fresh interpreter. What it prints last is what was found."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            env=os.environ | (environ or {}),
        )
    except subprocess.TimeoutExpired:
        return Finding(Level.ERROR, subject, f"did not answer within {_IMPORT_TIMEOUT_S:g} s", remedy)
    if done.returncode == 0:
        lines = done.stdout.strip().splitlines()
        return Finding(Level.OK, subject, lines[-1] if lines else "works")
    lines = done.stderr.strip().splitlines()
    ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return Finding(Level.ERROR, subject, f"fails: {lines[-1].strip() if lines else ended}", remedy)


def _requirements(dist: str) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    lines = _requires(dist)
    if lines is None:
        return
    wrong, fine = [], []
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        plain = f"{requirement.name}{requirement.specifier}"
        version = _version(requirement.name)
        if version is None:
            wrong.append((plain, "is not installed"))
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append((plain, f"is installed as {version}"))
        else:
            fine.append(f"{requirement.name} {version}")
    for plain, state in wrong:
        yield Finding(Level.ERROR, dist, f"needs {plain}, which {state}", f'pip install "{plain}"')
    if not wrong:
        yield Finding(Level.OK, f"{dist} {_version(dist)}", _listed(fine) or "needs nothing else")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name for name in sorted(names, key=str.lower) if not same_name(name.split()[0], CORE_DIST))


def _requires(dist: str) -> list[str] | None:
    try:
        return metadata.requires(dist) or []
    except metadata.PackageNotFoundError:
        return None


def _version(dist: str) -> str | None:
    try:
        return metadata.version(dist)
    except metadata.PackageNotFoundError:
        return None


def _metadata(dist: str, key: str) -> str:
    try:
        found = metadata.metadata(dist)
        return str(found[key]) if key in found else ""
    except metadata.PackageNotFoundError:
        return ""
