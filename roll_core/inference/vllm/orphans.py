"""vLLM's processes end when the one that started them is gone, however it went.

vLLM 0.32 leaves them running when that one is killed, with all the memory they hold.
"""

from __future__ import annotations

import os
import threading
import time
from itertools import takewhile

import psutil

LOOK_S = 1.0


def end_with(owner_pid: int) -> None:
    """From now on this process, and those between it and the owner, end within seconds of the owner's end."""
    owner = psutil.Process(owner_pid)
    between = list(takewhile(lambda process: process.pid != owner_pid, psutil.Process().parents()))
    threading.Thread(target=_watch, args=(owner, between), name="watches the owner", daemon=True).start()


def _watch(owner: psutil.Process, between: list[psutil.Process]) -> None:
    while _is_alive(owner):
        time.sleep(LOOK_S)
    for process in between:
        if _is_alive(process):
            process.kill()
    os._exit(1)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
