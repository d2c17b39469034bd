"""Answers that engines put into a transport: where they are put, what is read of them here, and when they are freed."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from roll_core.data.answers import (
    TEXT_COLUMN,
    AnswerTokens,
    RemoteCompletion,
    RowStore,
    put_completions,
    read_tokens,
)
from roll_core.data.remote_batch import BatchReader, Lease, RowRemoteBatch
from roll_core.data.vision import Vision
from roll_core.inference import Completion, GenerationRequest
from roll_core.rollout.routing import AnswerStore
from roll_core.transport import DataLost, Transport

LEFT_S = 10.0
"""Where some answers are lost, the others are read one by one, for so long: of a transport that has ended each question
can take a second, and a run that fails is to end."""


class AnswerShelf:
    """Tells engines where to put answers, and frees those that nobody will read any more.

    Answers of a step are put under its name, those of engines that never stop under the version of their weights: so
    also what an engine put and never told is freed, when all that was begun as early has left. Rows that the newest
    state of a run refers to are kept until there is a newer one. Methods may be called from several threads.

    Args:
        at_end: is given what is to be done when the step that has begun ends, however it ends.
        folder: holds the tokenizer that makes text of answers and, with `has_images`, what reads prompts' images.
    """

    def __init__(
        self,
        transport: Transport,
        at_end: Callable[[Callable[[], None]], None],
        folder: str,
        has_images: bool = False,
    ) -> None:
        self.transport, self.at_end, self.folder, self.has_images = transport, at_end, folder, has_images
        self._client = pickle.dumps(transport)
        self._versions: set[int] = set()
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._waiting: list[RowRemoteBatch] = []

    @contextmanager
    def lent(self, name: str) -> Iterator[AnswerStore]:
        """Where engines put answers that nobody trains on, and that are freed with the block; of images, nothing."""
        with Lease(self.transport, name):
            yield AnswerStore(RowStore(self._client, name), self.folder)

    def of_step(self, step: int) -> AnswerStore:
        """Where engines put the answers of the step that has begun, which end with it."""
        name = f"answers-{step}"
        self.at_end(lambda: self.transport.clear_partition(name))
        return self._under(name)

    def of_version(self, version: int, oldest: int) -> AnswerStore:
        """Where engines put what they sample with these weights; nothing of versions before `oldest` is wanted."""
        self._versions.add(version)
        for past in [one for one in self._versions if one < oldest]:
            self.transport.clear_partition(_of_version(past))
            self._versions.discard(past)
        return self._under(_of_version(version))

    def free(self, rows: RowRemoteBatch) -> None:
        """Nobody will train on these."""
        with self._lock:
            is_held = [key in self._held for key in rows.keys]
            if any(is_held):
                self._waiting.append(rows.filter(is_held))
        self._clear(rows.filter([not one for one in is_held]))

    def lend(self, rows: RowRemoteBatch) -> None:
        """The step that has begun trains on these; they are freed when it ends."""
        self.at_end(lambda: self.free(rows))

    def hold(self, rows: Sequence[RowRemoteBatch]) -> None:
        """A checkpoint may need these from now on, and none that were held before."""
        with self._lock:
            self._held = {key for one in rows for key in one.keys}
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.free(one)

    def put(
        self, completions: Sequence[Completion], requests: Sequence[GenerationRequest], texts: Sequence[str]
    ) -> list[RemoteCompletion]:
        """Put answers that a checkpoint brought."""
        vision = Vision(self.folder) if self.has_images else None
        store = RowStore(self._client, "answers-resumed")
        return put_completions(store, self.transport, completions, requests, texts, vision)

    def read(self, rows: Sequence[RowRemoteBatch]) -> dict[str, AnswerTokens]:
        """Answers by the keys of their rows, for a checkpoint; without those that a process took with it.

        Raises:
            RowsGone, TransportTimeout: as `Transport.get`.
        """
        try:
            return {row.keys[0]: found for row, found in zip(rows, read_tokens(self.transport, rows))}
        except DataLost:
            return self._left(rows)

    def texts(self, rows: RowRemoteBatch) -> list[str]:
        """The texts of answers, in order."""
        return list(BatchReader(self.transport).materialize(rows, [TEXT_COLUMN])[TEXT_COLUMN])

    def _under(self, name: str) -> AnswerStore:
        return AnswerStore(RowStore(self._client, name), self.folder, self.has_images)

    def _left(self, rows: Sequence[RowRemoteBatch]) -> dict[str, AnswerTokens]:
        found: dict[str, AnswerTokens] = {}
        until = time.monotonic() + LEFT_S
        for row in rows:
            if time.monotonic() < until:
                with suppress(DataLost):
                    [found[row.keys[0]]] = read_tokens(self.transport, [row])
        return found

    def _clear(self, rows: RowRemoteBatch) -> None:
        for block in rows.blocks:
            self.transport.clear(block)


def _of_version(version: int) -> str:
    return f"answers-of-version-{version}"
