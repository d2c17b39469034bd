"""The list of a checkpoint's files with their sizes and checksums: how a whole checkpoint is told from a torn one."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roll_core._version import __version__

MANIFEST_NAME = "manifest.json"
FORMAT = 1
"""Raised when a manifest can no longer be read by the code that reads the one before."""


@dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint: its size in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of. `extra` is the run's own: roles, world sizes and the like."""

    step: int
    files: Mapping[str, FileRecord]
    roll_core: str = __version__
    saved_at: float = 0.0
    """Seconds since 1970, to the microsecond."""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Damage(Exception):
    """A checkpoint is not whole. The message names the file and what is wrong with it."""


def write_manifest(folder: Path, step: int, extra: Mapping[str, Any], later_than: float = 0.0) -> Manifest:
    """Record every file below `folder` in its manifest.json.

    `later_than` is when the last one before it was written: a clock that was set back makes no checkpoint an old one.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST_NAME
    }
    with ThreadPoolExecutor(_num_threads(len(paths))) as pool:
        checksums = list(pool.map(_sha256, paths.values()))
    files = {
        name: FileRecord(path.stat().st_size, checksum) for (name, path), checksum in zip(paths.items(), checksums)
    }
    manifest = Manifest(step, files, saved_at=round(max(time.time(), later_than + 0.001), 6), extra=dict(extra))
    content = {"format": FORMAT, **asdict(manifest)}
    content["checksum"] = _checksum_of(content)
    with (folder / MANIFEST_NAME).open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint folder; its files are not looked at.

    Raises:
        Damage: there is none, it is damaged, or it was written by a newer roll-core.
    """
    try:
        text = (folder / MANIFEST_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Damage(f"{MANIFEST_NAME} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Damage(f"{MANIFEST_NAME} cannot be read: {error}") from error
    try:
        content = json.loads(text)
        claimed = content.pop("checksum")
    except (ValueError, AttributeError, KeyError):
        raise Damage(f"{MANIFEST_NAME} is damaged") from None
    if _checksum_of(content) != claimed:
        raise Damage(f"{MANIFEST_NAME} is damaged: it does not have the checksum that was recorded")
    if content["format"] > FORMAT:
        raise Damage(f"{MANIFEST_NAME} has format {content['format']}, written by roll-core {content['roll_core']}")
    files = {name: FileRecord(**record) for name, record in content["files"].items()}
    return Manifest(content["step"], files, content["roll_core"], content["saved_at"], content["extra"])


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """See that every file is there with its recorded size; quick, reads no content. Further files are no damage.

    Raises:
        Damage: a file is missing, cut or has grown.
    """
    for name, record in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise Damage(f"{name} is missing")
        size = path.stat().st_size
        if size != record.size:
            raise Damage(f"{name} has {size} bytes, {record.size} were written")


def check_content(folder: Path, manifest: Manifest) -> None:
    """`check_sizes`, then compare the checksum of every file; reads all of it, several files at a time.

    Raises:
        Damage: a file is missing, cut, changed or unreadable.
    """
    check_sizes(folder, manifest)

    def problem(name: str) -> str:
        try:
            checksum = _sha256(folder / name)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        return "" if checksum == manifest.files[name].sha256 else f"{name} does not have the content that was written"

    with ThreadPoolExecutor(_num_threads(len(manifest.files))) as pool:
        for found in pool.map(problem, manifest.files):
            if found:
                raise Damage(found)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _num_threads(num_files: int) -> int:
    # hashlib lets other threads run; beyond eight, disks are the limit.
    return max(1, min(num_files, os.cpu_count() or 1, 8))


def _checksum_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
