"""Writing to disk so that it stays written, and saying plainly why it could not."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from roll_core.errors import CheckpointError

GIB = 1024**3


def flush_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a directory's entries, are on the disk and not only in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree_to_disk(folder: Path) -> None:
    """`flush_to_disk` for every file and directory below a folder, and for the folder itself."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() or path.is_dir():
            flush_to_disk(path)
    flush_to_disk(folder)


def free_bytes(path: Path) -> int | None:
    """Free bytes where `path` is, or would be; None where the system doesn't say."""
    for parent in (path, *path.parents):
        if parent.is_dir():
            try:
                return shutil.disk_usage(parent).free
            except OSError:
                return None
    return None


def storage_error(action: str, path: Path, error: OSError) -> CheckpointError:
    """An OSError as a message for the user: what was being done, what the disk said, what to do."""
    advice = {
        errno.ENOSPC: "free some space, lower max_ckpt_to_keep, or set checkpoint_config.output_dir to a larger disk",
        errno.EDQUOT: "free some of your quota, lower max_ckpt_to_keep, or set checkpoint_config.output_dir elsewhere",
        errno.EFBIG: "raise the limit on file sizes (`ulimit -f`), or set checkpoint_config.output_dir elsewhere",
        errno.EROFS: "set checkpoint_config.output_dir to a disk that can be written",
        errno.EACCES: "set checkpoint_config.output_dir to a folder that this user may write to",
        errno.EPERM: "set checkpoint_config.output_dir to a folder that this user may write to",
        errno.ENOTDIR: "a file is in the way: remove it, or set checkpoint_config.output_dir to a folder",
        errno.EEXIST: "a file is in the way: remove it, or set checkpoint_config.output_dir to a folder",
    }
    lines = [f"cannot {action}: {error.strerror or error}", f"  at:   {error.filename or path}"]
    free = free_bytes(path)
    if free is not None:
        lines.append(f"  free: {free / GIB:.1f} GiB there")
    hint = advice.get(error.errno or 0)
    if hint:
        lines.append(f"  try:  {hint}")
    return CheckpointError("\n".join(lines))
