"""The worker process of an engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.cluster.process import load_target
from roll_core.cluster.worker import Worker, enter_weight_group, load_tokenizer

if TYPE_CHECKING:
    import torch

    from roll_core.data.answers import RemoteCompletion, RowStore
    from roll_core.data.vision import Vision
    from roll_core.inference import Completion, GenerationRequest
    from roll_core.transport import Transport
    from roll_core.weights import WeightManifest, WeightReceiver
    from roll_core.weights.shared_memory import SharedMemory


class InferWorker(Worker):
    """One engine."""

    def start(self) -> None:
        """Make the engine and load what it needs."""
        self.strategy = load_target(self.spec.strategy_target)(self.spec.role, self.platform, self.spec.context)
        self.strategy.start()
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._tokenizer: Any = None
        self._vision: Vision | None = None
        self.weight_group: Any = None
        self.weight_device: torch.device | None = None
        self.weight_memory: SharedMemory | None = None

    def join_weight_group(self, address: str, port: int, rank: int, world_size: int, through_host: bool) -> None:
        """Join the trainer's group."""
        self.weight_group, self.weight_device = enter_weight_group(self, address, port, rank, world_size, through_host)

    def open_shared_weights(self, path: Path, slot_bytes: int) -> None:
        """Open the memory that the trainer reserved on this node."""
        from roll_core.weights.shared_memory import SharedMemory

        self.weight_memory = SharedMemory(path, slot_bytes)

    def generate(self, requests: Sequence[GenerationRequest], interval_s: float) -> Iterator[list[Completion]]:
        """Completions as they finish, in lists no more often than every `interval_s`: each yield costs a message."""
        finished: list[Completion] = []
        sent = time.monotonic()
        for completion in self.strategy.generate(requests):
            finished.append(completion)
            if time.monotonic() - sent >= interval_s:
                yield finished
                finished, sent = [], time.monotonic()
        if finished:
            yield finished

    def generate_rows(
        self, requests: Sequence[GenerationRequest], interval_s: float, store: RowStore, folder: str, has_images: bool
    ) -> Iterator[list[RemoteCompletion]]:
        """As `generate`, but tokens, log-probabilities, texts and images go into the store, and references come back.

        What there is of interrupted answers is read there, and each is put as a whole again. `folder` holds the
        tokenizer, and what reads images where they are to be put.
        """
        from roll_core.data.answers import Continuing, put_completions
        from roll_core.data.vision import Vision

        with self._lock:
            if self._transport is None:
                self._transport, self._tokenizer = store.open(), load_tokenizer(folder)
            if has_images and self._vision is None:
                self._vision = Vision(folder)
        vision = self._vision if has_images else None
        going = Continuing(requests, self._transport)
        for finished in self.generate(going.requests(), interval_s):
            whole = [going.whole(one) for one in finished]
            # Without special tokens, as a driver decodes what it is sent.
            texts = self._tokenizer.batch_decode([one.token_ids for one in whole], skip_special_tokens=True)
            asked = [going.asked[one.request_id] for one in whole]
            yield put_completions(store, self._transport, whole, asked, texts, vision)

    def abort(self, request_ids: Sequence[str] | None) -> list[str]:
        """Stop requests; returns those that were running."""
        aborted: list[str] = self.strategy.abort(request_ids)
        return aborted

    def update_weights(self, manifest: WeightManifest) -> str:
        """Take the weights the trainer is sending; returns the digest of what was taken."""
        from roll_core.weights.broadcast import BroadcastReceiver
        from roll_core.weights.shared_memory import SharedMemoryReceiver

        receiver: WeightReceiver
        if self.weight_memory is not None:
            receiver = SharedMemoryReceiver(self.weight_group, self.weight_memory, manifest)
        else:
            assert self.weight_device is not None
            receiver = BroadcastReceiver(self.weight_group, manifest, self.weight_device)
        digest: str = self.strategy.update_weights(receiver)
        return digest

    def sleep(self) -> None:
        """Free the device for a colocated trainer."""
        self.strategy.sleep()

    def wake(self) -> None:
        """Undo `sleep`."""
        self.strategy.wake()

    def stop(self) -> None:
        """End the engine."""
        self.strategy.stop()
