"""The kinds of worker process. Plain classes: `WorkerGroup` makes Ray actors of them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.cluster.process import free_port, load_target, prepare
from roll_core.cluster.spec import WorkerSpec

if TYPE_CHECKING:
    import torch

    from roll_core.data import DataProto
    from roll_core.data.answers import RemoteCompletion, RowStore
    from roll_core.data.remote_batch import BatchReader, RowRemoteBatch
    from roll_core.data.vision import Vision
    from roll_core.inference import Completion, GenerationRequest, SamplingParams
    from roll_core.rewards import RewardSample, Score
    from roll_core.training import TokenLoss, TrainPlan
    from roll_core.transport import Transport
    from roll_core.weights import WeightManifest, WeightReceiver, WeightSender
    from roll_core.weights.shared_memory import SharedMemory

log = logging.getLogger(__name__)

CACHE_BYTES = 256 * 2**20
"""Rows that a trainer keeps of what it read: scores, and every epoch, read the same prompts and responses."""


class _Worker:
    """What all workers have: a name in Ray's messages, facts about the process, and a call that never ends."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.platform = prepare(spec)

    def __repr__(self) -> str:
        return self.spec.name

    def facts(self) -> dict[str, Any]:
        """Process id, a free port on this node's address, the node, and the devices, each known by one name to all."""
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        has_memory = self.platform.device_type != "cpu"
        return {
            "pid": os.getpid(),
            "address": ray.util.get_node_ip_address(),
            "port": free_port(),
            "node": node,
            "devices": [f"{node}/{self.platform.device_uid(index)}" for index in range(self.platform.device_count())]
            if has_memory
            else [],
        }

    def watch(self) -> None:
        """Never return: whoever waits for this learns at once when the process ends."""
        threading.Event().wait()


class TrainWorker(_Worker):
    """One rank of a role that trains or scores."""

    def setup(self, master_addr: str, master_port: int, plan: TrainPlan | None) -> None:
        """Make the strategy and let it join its peers and load the model."""
        context = replace(self.spec.context, master_addr=master_addr, master_port=master_port)
        self.strategy = load_target(self.spec.strategy_target)(self.spec.role, self.platform, context)
        self.strategy.setup(plan)
        self.weight_group: Any = None
        self.weight_device: torch.device | None = None
        self.weight_memory: SharedMemory | None = None
        self.reader: BatchReader | None = None

    def attach(self, transport: Transport) -> None:
        """From now on, batches may be references to rows in this transport."""
        from roll_core.data.remote_batch import BatchReader

        self.reader = BatchReader(transport, CACHE_BYTES)

    def train_step(self, batch: DataProto | RowRemoteBatch, loss: TokenLoss) -> tuple[dict[str, float], float]:
        """One optimiser step; the metrics, and the seconds it took here."""
        start = time.perf_counter()
        metrics: dict[str, float] = self.strategy.train_step(self._read(batch), loss)
        return metrics, time.perf_counter() - start

    def log_probs(self, batch: DataProto | RowRemoteBatch, temperature: float, entropy: bool) -> DataProto:
        """Log-probs of this rank's rows."""
        scored: DataProto = self.strategy.log_probs(self._read(batch), temperature=temperature, entropy=entropy)
        return scored

    def values(self, batch: DataProto | RowRemoteBatch) -> DataProto:
        """A critic's values of this rank's rows."""
        valued: DataProto = self.strategy.values(self._read(batch))
        return valued

    def put_scores(
        self, batch: RowRemoteBatch, partition: str, column: str, method: str, *arguments: Any
    ) -> RowRemoteBatch:
        """What `log_probs` or `values` returns, put as a further column of the rows, and a reference to it."""
        from roll_core.data import DataProto
        from roll_core.data.remote_batch import put_batch

        scored: DataProto = getattr(self, method)(batch, *arguments)
        assert self.reader is not None, "references are sent to workers that have a transport"
        renamed = DataProto({column: scored[method]})
        return put_batch(self.reader.transport, renamed, partition=partition, like=batch)

    def _read(self, batch: DataProto | RowRemoteBatch) -> DataProto:
        from roll_core.data.padding import padded
        from roll_core.data.remote_batch import RowRemoteBatch

        if not isinstance(batch, RowRemoteBatch):
            return batch
        assert self.reader is not None, "references are sent to workers that have a transport"
        return padded(self.reader.materialize(batch))

    def describe_weights(self, bucket_bytes: int) -> WeightManifest | None:
        """The manifest of version 0, from rank 0; the other ranks take part in gathering."""
        from roll_core.weights.packing import describe

        manifest = describe(self.strategy.weights(bucket_bytes), version=0)
        return manifest if self.spec.context.rank == 0 else None

    def join_weight_group(self, address: str, port: int, world_size: int, through_host: bool) -> None:
        """Rank 0 opens the group that the engines join."""
        self.weight_group, self.weight_device = _join(self, address, port, 0, world_size, through_host)

    def share_weights(self, slot_bytes: int) -> tuple[Path | None, str]:
        """Rank 0 reserves memory for engines on its node: where it is, or None and the reason."""
        from roll_core.weights.shared_memory import SharedMemory

        try:
            self.weight_memory = SharedMemory.create(slot_bytes)
        except OSError as error:
            return None, str(error)
        return self.weight_memory.path, ""

    def hide_shared_weights(self) -> None:
        """Every engine has the memory open: from here on it ends with the processes, however they end."""
        assert self.weight_memory is not None
        self.weight_memory.path.unlink()

    def send_weights(self, manifest: WeightManifest, bucket_bytes: int) -> None:
        """Send the weights as they are now. An engine's death is an error only after all ranks have done gathering."""
        from roll_core.weights.broadcast import BroadcastSender
        from roll_core.weights.shared_memory import SharedMemorySender

        sender: WeightSender = BroadcastSender(self.weight_group, self.weight_device)
        if self.weight_memory is not None:
            sender = SharedMemorySender(self.weight_group, self.weight_memory)
        buckets = self.strategy.weights(bucket_bytes)
        try:
            sender.send(buckets, manifest)
        finally:
            # The other ranks do not know of the engine: left alone in a collective, they could not even save.
            for _bucket in buckets:
                pass

    def offload(self) -> None:
        """Free the device for a colocated engine."""
        self.strategy.offload()

    def reload(self) -> None:
        """Undo `offload`."""
        self.strategy.reload()

    def save(self, path: Path) -> None:
        """Write this rank's part of a checkpoint."""
        self.strategy.save(path)

    def load(self, path: Path) -> None:
        """Restore this rank's part of a checkpoint."""
        self.strategy.load(path)

    def close(self) -> None:
        """Leave the process group."""
        self.strategy.close()


class InferWorker(_Worker):
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
        self.weight_group, self.weight_device = _join(self, address, port, rank, world_size, through_host)

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

        What there is of interrupted answers is read there, and each is put as a whole again.

        `folder` holds the tokenizer, and what reads images where they are to be put.
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


class _Grader(_Worker):
    """A worker of a reward domain, which may be asked for scores of responses that are elsewhere."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec)
        self._lock = threading.Lock()
        self._reader: BatchReader | None = None

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, which changes when the worker was restarted."""
        raise NotImplementedError

    def compute_rewards_of_rows(
        self, samples: Sequence[RewardSample], rows: RowRemoteBatch, store: RowStore
    ) -> tuple[list[Score], int]:
        """As `compute_rewards`; the responses are read here, and nothing else of their rows."""
        from roll_core.data.answers import TEXT_COLUMN
        from roll_core.data.remote_batch import BatchReader

        with self._lock:
            reader = self._reader = self._reader or BatchReader(store.open())
        texts = reader.materialize(rows, [TEXT_COLUMN])[TEXT_COLUMN]
        return self.compute_rewards([replace(one, response=text) for one, text in zip(samples, texts)])


class RewardActor(_Grader):
    """One worker of a reward domain. It has no state worth keeping, so Ray may start it again."""

    def __init__(self, spec: WorkerSpec, reward: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """`options` are the reward's own, `settings` those of the `RewardWorker` around it."""
        super().__init__(spec)
        from roll_core.rewards.worker import RewardWorker

        self.worker = RewardWorker(reward, options, **settings)

    def self_test(self) -> list[str]:
        """Sentences about an install in which verdicts would be wrong."""
        return self.worker.self_test()

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, which changes when the worker was restarted."""
        return self.worker.compute_rewards(list(samples)), os.getpid()

    def close(self) -> None:
        """End the grading processes."""
        self.worker.close()


class JudgeActor(_Grader):
    """A worker of a reward domain that is judged by an engine of this run, on devices of its own."""

    def __init__(
        self, spec: WorkerSpec, prompt: str, template: str, params: SamplingParams, settings: Mapping[str, Any]
    ) -> None:
        """`settings` are `name`, `deadline_s` and `count_as_zero`. The engine starts when it is first asked."""
        super().__init__(spec)
        from roll_core.rewards.judge_engine import EngineJudge
        from roll_core.rewards.judge_text import TokenizerText

        folder = spec.role.model_args.model_name_or_path
        assert folder is not None, "the config's problems name it"
        text = TokenizerText(folder, template)
        self.count_as_zero = bool(settings["count_as_zero"])
        self.judge = EngineJudge(
            lambda: load_target(spec.strategy_target)(spec.role, self.platform, spec.context),
            text,
            replace(params, stop_token_ids=text.stop_token_ids),
            prompt,
            settings["name"],
            **({} if settings["deadline_s"] is None else {"deadline_s": settings["deadline_s"]}),
        )

    def self_test(self) -> list[str]:
        """Sentences about a judge that does not answer, or takes wrong for right."""
        return self.judge.self_test()

    def compute_rewards(self, samples: Sequence[RewardSample]) -> tuple[list[Score], int]:
        """One score per sample, and this process's id, as of any reward worker."""
        from roll_core.rewards.worker import counted_as_zero

        scores = self.judge.compute_rewards(list(samples))
        return counted_as_zero(scores) if self.count_as_zero else scores, os.getpid()

    def close(self) -> None:
        """End the engine."""
        self.judge.close()


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a model's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def _join(
    worker: _Worker, address: str, port: int, rank: int, world_size: int, through_host: bool
) -> tuple[Any, torch.device]:
    """The group, and the device that what is sent lies on."""
    import torch

    from roll_core.weights.group import join_group

    platform = worker.platform
    group = join_group(
        address=address,
        port=port,
        rank=rank,
        world_size=world_size,
        backend="gloo" if through_host else platform.collective_backend,
        timeout_s=worker.spec.context.timeout_s,
    )
    return group, torch.device("cpu") if through_host else platform.device(0)
