"""How the `ray` transport asks its directory, and what is said where Ray has no answer."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from roll_core.errors import RollError
from roll_core.transport.base import CapacityError, DataLost, TransportTimeout
from roll_core.transport.directory import Manifest

START_S = 60.0
"""The directory is a process that may have to start first."""
PAUSE_S = 0.02
"""Between two questions for room."""


class DirectoryClient:
    """Waits for no answer beyond a deadline; errors of Ray become those of transports."""

    def __init__(self, actor: Any, timeout_s: float) -> None:
        self.actor, self.timeout_s, self._process = actor, timeout_s, os.getpid()
        self.max_bytes: int = self.ask("limit", deadline=time.monotonic() + max(START_S, timeout_s))

    def deadline(self) -> float:
        """When an operation that begins now ends at the latest."""
        return time.monotonic() + self.timeout_s

    def ask(self, method: str, *arguments: Any, deadline: float) -> Any:
        """What a method of the directory returns."""
        self.ray()
        return self.fetch([getattr(self.actor, method).remote(*arguments)], deadline)[0]

    def reserve(self, manifest: Manifest, deadline: float) -> None:
        """Set room aside before large objects are made, for as long as a put may take, twice.

        Raises:
            CapacityError: there was no room in time, or there never will be.
        """
        self._until_there_is_room(manifest, deadline, "reserve", manifest.chunk, manifest.num_bytes, 2 * self.timeout_s)

    def add(self, manifest: Manifest, references: Sequence[Any], deadline: float, *, copied: bool = False) -> None:
        """Have a put's objects held.

        Raises:
            CapacityError: as of `reserve`.
        """
        self._until_there_is_room(manifest, deadline, "add", manifest, references, copied)

    def fetch(self, references: Sequence[Any], deadline: float) -> list[Any]:
        """Values of objects of Ray."""
        ray = self.ray()
        exceptions = ray.exceptions
        try:
            fetched: list[Any] = ray.get(list(references), timeout=max(0.0, deadline - time.monotonic()))
            return fetched
        except exceptions.GetTimeoutError as error:
            raise TransportTimeout(
                f"the ray transport did not answer within {self.timeout_s:g} s"
                "\n  try: `ray status` and the logs of the nodes; a larger timeout_s in transfer_backend.backend_config"
            ) from error
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, RollError):
                raise error.cause from error
            raise RollError(f"a remote method of the ray transport failed\n{error}") from error
        except exceptions.RayActorError as error:
            raise directory_lost(error) from error
        except exceptions.ObjectLostError as error:
            raise DataLost(
                f"rows are lost with the process that put them\n  cause: {str(error).splitlines()[0]}"
                "\n  try: ownership: copied in transfer_backend.backend_config, which keeps them, for one more copy"
            ) from error

    @property
    def is_forked(self) -> bool:
        """Whether this process is a copy of the one that uses Ray."""
        return self._process != os.getpid()

    def ray(self) -> Any:
        """Ray, which does not survive a fork.

        Raises:
            RollError: this process was forked.
        """
        if self.is_forked:
            raise RollError(
                f"process {os.getpid()} was forked from process {self._process}, which uses Ray: "
                "Ray does not survive a fork"
                "\n  try: start the process with spawn, or make a Ray task of what it does"
            )
        import ray

        return ray

    def _until_there_is_room(self, manifest: Manifest, deadline: float, method: str, *arguments: Any) -> None:
        needed = manifest.num_bytes
        if needed > self.max_bytes:
            raise CapacityError(
                f"a put of {_mib(needed)} MiB, and the transport holds at most {_mib(self.max_bytes)} MiB"
                "\n  try: smaller puts, a larger max_bytes in transfer_backend.backend_config, or a larger object store"
            )
        was_full = False
        while not was_full or time.monotonic() + PAUSE_S < deadline:
            try:
                if self.ask(method, *arguments, deadline=deadline):
                    return
            except TransportTimeout:
                if not was_full:
                    raise
                break  # It did answer before, and there was no room.
            was_full = True
            time.sleep(PAUSE_S)
        held = self.ask("stats", deadline=self.deadline()).num_bytes
        raise CapacityError(
            f"no room for {_mib(needed)} MiB within {self.timeout_s:g} s: "
            f"{_mib(held)} of {_mib(self.max_bytes)} MiB are held"
            "\n  try: rows that are no longer needed are to be cleared, or a larger max_bytes"
        )


def directory_lost(error: Exception) -> DataLost:
    """The error of a directory that has ended."""
    return DataLost(
        "the directory of the ray transport has ended, and with it all rows"
        f"\n  cause: {str(error).splitlines()[0]}\n  try: resume from the last checkpoint"
    )


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f}"
