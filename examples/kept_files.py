"""Folders of files that take long to make: made once, and kept while they are whole and would come out the same."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path


def make_once(
    place: Path,
    folders: Sequence[str],
    settings: Mapping[str, object],
    make: Callable[[Path], None],
    manifest: str = "assets.json",
) -> None:
    """Have folders made under `place`, unless they are there already, whole and made with the same settings.

    An interruption leaves what was there before. Everything else under `place` is left alone.

    Args:
        folders: names of the folders.
        settings: whatever decides how the files come out, as JSON data; versions of packages are added to it.
        make: writes all of the folders under the path that it is given.
        manifest: the file that says what the folders were made with, and how large their files are.
    """
    # The versions matter: transformers writes configs that an older one does not read alike. They are read from the
    # installed packages' metadata, as importing both takes two seconds.
    settings = {**settings, **{name: version(name) for name in ("torch", "transformers")}}
    record = place / manifest
    if _read(record) == {"settings": settings, "sizes": _sizes(place, folders)}:
        return
    partial = place / f".partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        make(partial)
        # The record of the old folders goes first and that of the new ones comes last: no mixture is ever used.
        record.unlink(missing_ok=True)
        for name in folders:
            shutil.rmtree(place / name, ignore_errors=True)
            (partial / name).rename(place / name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _write_atomically(record, json.dumps({"settings": settings, "sizes": _sizes(place, folders)}, indent=2) + "\n")


def _read(record: Path) -> object:
    try:
        return json.loads(record.read_text())
    except (OSError, ValueError):
        return None


def _sizes(place: Path, folders: Sequence[str]) -> dict[str, int]:
    files = sorted(path for name in folders for path in (place / name).rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.stat().st_size for path in files}


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
