"""The weights of a model of 100 million parameters into hf_infer, beside a memory copy of as many bytes.

They go as in a run: from another process, through shared memory, in buckets, and confirmed. A part of `rollout.py`.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform
from roll_core.weights.group import join_group
from roll_core.weights.packing import Bucket, describe, largest_bucket
from roll_core.weights.shared_memory import BUCKET_BYTES, SharedMemory, SharedMemoryReceiver, SharedMemorySender

TIMEOUT_S = 120.0
WANTED = 3.0


@dataclass(frozen=True)
class Seconds:
    """Wall seconds, and processor seconds of all processes that took part."""

    wall: float
    cpu: float


def config_of_100m() -> Any:
    """12 layers, 101 million parameters, none of them tied."""
    return Qwen2Config(
        vocab_size=12000,
        hidden_size=768,
        intermediate_size=2304,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def buckets_of(model: torch.nn.Module) -> Iterator[Bucket]:
    """The model's tensors in a run's buckets."""
    bucket: Bucket = []
    size = 0
    for name, tensor in model.state_dict().items():
        if bucket and size + tensor.nbytes > BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, tensor))
        size += tensor.nbytes
    yield bucket


def train(folder: str, port: int, engine: Connection) -> None:
    """The trainer's process: sends a version each time it is told one, and says what that cost it."""
    torch.set_num_threads(1)
    with torch.no_grad():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
        buckets = list(buckets_of(model))
        memory = SharedMemory.create(largest_bucket(describe(iter(buckets), 0)))
        engine.send((memory.path, memory.slot_bytes, sum(tensor.nbytes for one in buckets for _name, tensor in one)))
        sender = SharedMemorySender(_join(port, rank=0), memory)
        memory.path.unlink()
        while (version := engine.recv()) is not None:
            manifest = describe(iter(buckets), version)
            engine.send(manifest)
            cpu = time.process_time()
            sender.send(iter(buckets), manifest)
            engine.send(time.process_time() - cpu)


def measure(repeats: int) -> tuple[int, Seconds, Seconds]:
    """Bytes of the weights, and the best of updates and of copies of as many bytes, which take turns."""
    with tempfile.TemporaryDirectory() as folder:
        config_of_100m().save_pretrained(folder)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        port = _free_port()
        trainer = context.Process(target=train, args=(folder, port, theirs), daemon=True)
        trainer.start()
        path, slot_bytes, num_bytes = ours.recv()
        memory = SharedMemory(path, slot_bytes)
        group = _join(port, rank=1)
        engine = _engine(folder)
        source = torch.ones(num_bytes // 4)
        target = torch.zeros_like(source)
        updates, copies = [], []
        # The first of each touches its memory for the first time.
        for version in range(repeats + 1):
            updates.append(_update(engine, ours, group, memory, version))
            copies.append(_copy(source, target))
        ours.send(None)
        trainer.join(TIMEOUT_S)
        engine.stop()
    return num_bytes, _best(updates[1:]), _best(copies[1:])


def _best(found: list[Seconds]) -> Seconds:
    return Seconds(min(one.wall for one in found), min(one.cpu for one in found))


def _engine(folder: str) -> Any:
    role = WorkerConfig.model_validate(
        {
            "name": "actor_infer",
            "model_args": {"model_name_or_path": folder, "dtype": "fp32"},
            "strategy_args": {"strategy_name": "hf_infer", "strategy_config": {"load_format": "dummy"}},
        }
    )
    engine = HfInferStrategy(role, CpuPlatform(), WorkerContext("actor_infer"))
    engine.start()
    return engine


def _update(engine: Any, trainer: Connection, group: Any, memory: SharedMemory, version: int) -> Seconds:
    trainer.send(version)
    receiver = SharedMemoryReceiver(group, memory, trainer.recv())
    wall, cpu = time.perf_counter(), time.process_time()
    assert engine.update_weights(receiver) == receiver.manifest.digest
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Seconds(wall, cpu + trainer.recv())


def _copy(source: torch.Tensor, target: torch.Tensor) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    target.copy_(source)
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def _join(port: int, rank: int) -> Any:
    return join_group(address="127.0.0.1", port=port, rank=rank, world_size=2, backend="gloo", timeout_s=TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
