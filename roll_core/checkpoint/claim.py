"""One run at a time writes to a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from roll_core.checkpoint.storage import storage_error
from roll_core.errors import CheckpointError


@contextmanager
def claimed(folders: Mapping[Path, str], notify: Callable[[str], None]) -> Iterator[None]:
    """Keep other runs out of some folders, each under the config key that names it; made where they are missing.

    The system lets go of them when this process ends, however it ends, and nothing is left in them.

    Raises:
        CheckpointError: another run writes to one of them, or it cannot be made.
    """
    with ExitStack() as held:
        for folder, key in folders.items():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY)
            except OSError as error:
                raise storage_error(f"make the folder of {key}", folder, error) from error
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = f"wait until it has ended, or another {key} or exp_name"
                raise CheckpointError(f"another run is writing to {folder.absolute()}\n  try: {hint}") from None
            except OSError as error:
                # Some network file systems lock no directories; the run is worth more than the check.
                notify(f"whether another run writes to {folder} cannot be told: {error.strerror}")
        yield
