"""Buckets of weights on their way from the strategy's process to its engine's workers, on one node.

Each bucket is a file in memory. A socket says which one is next, and the workers answer when they have it open; then
it is unlinked, and its memory ends with the last tensor that uses it. vLLM's own calls carry no tensors between
processes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

import torch

from roll_core.weights import WeightReceiver
from roll_core.weights.packing import Bucket, Entry, pack, packed_bytes

MEMORY = Path("/dev/shm")
OPENED = b"o"


class WorkerGone(Exception):
    """A worker closed its end, or its process ended, before all buckets had come."""


class Outlet:
    """The strategy's end. `check` is called while it waits, and raises where the workers have failed."""

    def __init__(self, num_workers: int, check: Callable[[], None], timeout_s: float) -> None:
        self.num_workers, self.check, self.timeout_s = num_workers, check, timeout_s
        home = MEMORY if os.access(MEMORY, os.W_OK) else None
        # Only this user may enter the folder.
        self._folder = Path(tempfile.mkdtemp(prefix="roll-weights-", dir=home))
        self.address = str(self._folder / "socket")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.settimeout(0.2)
        self._server.bind(self.address)
        self._server.listen(num_workers)
        self._workers: list[socket.socket] = []

    def __enter__(self) -> Outlet:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in [*self._workers, self._server]:
            connection.close()
        shutil.rmtree(self._folder)

    def send(self, receiver: WeightReceiver) -> None:
        """Hand on every bucket; the workers' answers come with the call that made them listen.

        Raises:
            WorkerGone: a worker left early; the call that made it listen knows why.
            Whatever `receiver` or `check` raises. The workers then end their loading with what they have.
        """
        self._meet()
        self._say({"version": receiver.manifest.version})
        for index, bucket in enumerate(receiver.receive()):
            entries = [(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in bucket]
            path = self._folder / str(index)
            self._write(path, bucket, packed_bytes(entries))
            self._say({"path": str(path), "entries": entries})
            for connection in self._workers:
                self._wait(lambda c=connection: c.recv(1))  # type: ignore[misc]
            path.unlink()
        self._say({})

    def _meet(self) -> None:
        while len(self._workers) < self.num_workers:
            connection, _ = self._wait(self._server.accept)
            connection.settimeout(0.2)
            self._workers.append(connection)

    def _wait(self, act: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                answer = act()
            except TimeoutError:
                self.check()
                if time.monotonic() > deadline:
                    raise
                continue
            except ConnectionError as error:
                raise WorkerGone from error
            if answer == b"":
                raise WorkerGone
            return answer

    def _say(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        for connection in self._workers:
            try:
                connection.sendall(line)
            except ConnectionError as error:
                raise WorkerGone from error

    @staticmethod
    def _write(path: Path, bucket: Bucket, num_bytes: int) -> None:
        with path.open("w+b") as file:
            # Writing into a file that only claims its size would end the process where there is no room.
            os.posix_fallocate(file.fileno(), 0, max(1, num_bytes))
            mapped = mmap(file.fileno(), 0)
        pack(bucket, torch.frombuffer(mapped, dtype=torch.uint8))


class Inlet:
    """A worker's end."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._lines = self._socket.makefile("r")
        self.version = int(json.loads(self._lines.readline())["version"])

    def __enter__(self) -> Inlet:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def buckets(self) -> Iterator[tuple[str, list[Entry]]]:
        """Files and what is in them, until there are no more, or the strategy's end is gone."""
        for line in self._lines:
            message = json.loads(line)
            if not message:
                return
            yield message["path"], [(name, dtype, tuple(shape)) for name, dtype, shape in message["entries"]]

    def opened(self) -> None:
        """Say that the bucket's file may be unlinked."""
        self._socket.sendall(OPENED)
