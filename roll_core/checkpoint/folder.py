"""The folder of a run's checkpoints: each appears whole under its final name, or not at all.

<output_dir>/checkpoint-20/             whole: written elsewhere, listed in a manifest, flushed, renamed
<output_dir>/.checkpoint-30.partial/    being written, or left by a run that was killed
<output_dir>/.checkpoint-20.replaced/   the older one of the same name, for the moment of the swap
<output_dir>/.checkpoint-10.removed/    being deleted
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roll_core.checkpoint.manifest import Damage, Manifest, check_content, check_sizes, read_manifest, write_manifest
from roll_core.checkpoint.storage import flush_to_disk, flush_tree_to_disk, storage_error
from roll_core.errors import CheckpointError

logger = logging.getLogger(__name__)

FINAL_NAME = re.compile(r"checkpoint-(\d+)")
HIDDEN_NAME = re.compile(r"\.checkpoint-(\d+)\.(partial|replaced|removed)")


@dataclass(frozen=True)
class Resume:
    """A whole checkpoint to go on from, after `step` finished steps."""

    step: int
    path: Path
    manifest: Manifest


class CheckpointFolder:
    """Writes, finds and prunes the checkpoints in one folder. One run at a time writes to a folder.

    `notify` receives what the user should read: skipped checkpoints, a start from scratch.
    """

    def __init__(
        self,
        output_dir: Path | str,
        max_ckpt_to_keep: int = 0,
        notify: Callable[[str], None] = logger.warning,
    ) -> None:
        self.output_dir = Path(output_dir)
        self.max_ckpt_to_keep = max_ckpt_to_keep
        self._notify = notify
        self._resumed_from: Path | None = None

    def clean(self) -> None:
        """Remove what a killed run left half-written or half-deleted. Call it when a run starts, before `begin`."""
        try:
            for path in _entries(self.output_dir):
                match = HIDDEN_NAME.fullmatch(path.name)
                if match is None:
                    continue
                final = self.output_dir / f"checkpoint-{match[1]}"
                if match[2] == "replaced" and not final.exists():
                    # Killed between the two renames of a swap: the older one is whole, so it takes its name back.
                    path.rename(final)
                else:
                    shutil.rmtree(path)
        except OSError as error:
            raise storage_error(f"clean up {self.output_dir}", self.output_dir, error) from error

    def begin(self, step: int) -> Path:
        """An empty folder, under a temporary name, for everything of checkpoint-`step`.

        Raises:
            CheckpointError: the folder cannot be made.
        """
        partial = self._hidden(step, "partial")
        try:
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir(parents=True)
        except OSError as error:
            raise storage_error(f"begin checkpoint-{step}", partial, error) from error
        return partial

    def finish(self, step: int, extra: Mapping[str, Any] | None = None) -> Path:
        """Make what was written since `begin` the whole checkpoint-`step`, then prune older ones.

        `extra` goes into the manifest: plain JSON data, such as the roles and their world sizes.

        Raises:
            CheckpointError: nothing was written, or the disk is full; what was whole before is untouched.
        """
        partial, final = self._hidden(step, "partial"), self.output_dir / f"checkpoint-{step}"
        if not partial.is_dir() or not any(partial.iterdir()):
            raise CheckpointError(f"checkpoint-{step} was finished with nothing written to {partial}")
        try:
            write_manifest(partial, step, extra or {}, self._last_written())
            flush_tree_to_disk(partial)
            replaced = self._hidden(step, "replaced")
            if final.exists():
                if replaced.exists():
                    shutil.rmtree(replaced)
                final.rename(replaced)
            partial.rename(final)
            flush_to_disk(self.output_dir)
            if replaced.exists():
                shutil.rmtree(replaced)
        except OSError as error:
            raise storage_error(f"save checkpoint-{step}", partial, error) from error
        self._prune(final)
        return final

    def discard(self, step: int) -> None:
        """Remove what was written since `begin`, after a failure."""
        shutil.rmtree(self._hidden(step, "partial"), ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps of the checkpoints that have all their files, in order. Sizes are looked at, contents are not."""
        return [step for step, path in _finished(self.output_dir) if not _damage(path)]

    def find(self, resume_from: bool | str) -> Resume | None:
        """The checkpoint to go on from: True is the newest whole one here, text is the path of one.

        None means a start from scratch: nothing was asked for, or, with a notice, there is none yet. `clean` comes
        before it: a run killed in mid-swap leaves its whole older checkpoint under a hidden name.

        Raises:
            CheckpointError: there are only damaged ones, or the one asked for is damaged or doesn't exist.
        """
        if resume_from is False:
            return None
        resume = self._newest() if resume_from is True else self._named(Path(resume_from))
        if resume is not None:
            self._resumed_from = resume.path.resolve()
        return resume

    def _newest(self) -> Resume | None:
        torn = []
        for step, path in reversed(_finished(self.output_dir)):
            try:
                manifest = _checked(path)
            except Damage as damage:
                torn.append(f"{path.name} is incomplete: {damage}")
                continue
            for line in torn:
                self._notify(f"{line}; skipped in {self.output_dir}")
            self._mention_later_writes(step, manifest)
            return Resume(manifest.step, path, manifest)
        if torn:
            listed = "".join(f"\n  {line}" for line in torn)
            raise CheckpointError(
                f"no checkpoint in {self.output_dir} is whole, so there is nothing to resume from{listed}\n"
                "  try: resume_from_checkpoint=PATH of a whole one, or =false to start from step 0"
            )
        self._notify(f"starting from scratch: no checkpoint in {self.output_dir}")
        return None

    def _mention_later_writes(self, step: int, chosen: Manifest) -> None:
        """A run that went on from an older step leaves higher steps of the run before it; say which is which."""
        for other_step, path in _finished(self.output_dir):
            if other_step >= step or _damage(path):
                continue
            if read_manifest(path).saved_at > chosen.saved_at:
                self._notify(
                    f"resuming from checkpoint-{step}, the highest step, though {path.name} was written after it; "
                    f"to go on from that one: resume_from_checkpoint={path}"
                )

    def _named(self, path: Path) -> Resume:
        if not path.is_dir():
            raise CheckpointError(f"no checkpoint at {path}" + self._listing(path.parent))
        if FINAL_NAME.fullmatch(path.name) is None and _finished(path):
            raise CheckpointError(f"{path} holds checkpoints, but is not one" + self._listing(path))
        try:
            manifest = _checked(path)
        except Damage as damage:
            raise CheckpointError(
                f"{path} is incomplete: {damage}" + self._listing(path.parent, without=path.name)
            ) from None
        return Resume(manifest.step, path, manifest)

    def _listing(self, folder: Path, without: str = "") -> str:
        """What there is to resume from, for an error message; the run's own folder where `folder` holds none."""
        if not _finished(folder):
            folder = self.output_dir
        found = [(path, _damage(path)) for _, path in _finished(folder)]
        whole = [path.name for path, damage in found if not damage]
        lines = f"\n  in {folder}: {', '.join(whole) or 'no whole checkpoint'}"
        torn = [f"{path.name} ({damage})" for path, damage in found if damage and path.name != without]
        if torn:
            lines += f"\n  incomplete: {', '.join(torn)}"
        if whole:
            lines += f"\n  try: resume_from_checkpoint={folder / whole[-1]}"
        return lines

    def _prune(self, written: Path) -> None:
        """Delete the checkpoints written longest ago, beyond the number to keep.

        Never the one just written, nor the one resumed from. Age is when it was written, not its step: after
        going on from an older step, higher steps of the run before it are the old ones.
        """
        if self.max_ckpt_to_keep <= 0:
            return
        whole = [path for _, path in _finished(self.output_dir) if not _damage(path)]
        by_age = sorted(whole, key=lambda path: (path == written, read_manifest(path).saved_at))
        spare = len(by_age) - self.max_ckpt_to_keep
        for path in by_age[: max(0, spare)]:
            if path == written or path.resolve() == self._resumed_from:
                continue
            removed = path.with_name(f".{path.name}.removed")
            try:
                path.rename(removed)
                shutil.rmtree(removed)
            except OSError as error:
                self._notify(f"could not remove the old {path.name} in {self.output_dir}: {error}")

    def _last_written(self) -> float:
        whole = [path for _, path in _finished(self.output_dir) if not _damage(path)]
        return max((read_manifest(path).saved_at for path in whole), default=0.0)

    def _hidden(self, step: int, kind: str) -> Path:
        return self.output_dir / f".checkpoint-{step}.{kind}"


def _finished(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of everything under a checkpoint's final name, by step as a number."""
    matches = [(FINAL_NAME.fullmatch(path.name), path) for path in _entries(folder)]
    return sorted((int(match[1]), path) for match, path in matches if match is not None and path.is_dir())


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _checked(path: Path) -> Manifest:
    """The manifest of a checkpoint all of whose files are as they were written.

    Raises:
        Damage: they are not.
    """
    manifest = read_manifest(path)
    check_content(path, manifest)
    return manifest


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint, as far as sizes show; empty if nothing."""
    try:
        check_sizes(path, read_manifest(path))
    except Damage as damage:
        return str(damage)
    return ""
