"""The weights of a model of 100 million parameters into hf_infer, beside a memory copy of as many bytes.

They go as in a run: from another process, through shared memory, in buckets, and confirmed. Matrices are packed for the
matrix kernel once the update has been confirmed, by two threads of the engine: so here is also when the last one is
packed, what the first generation after an update pays, and after how many passes packing has paid. A part of
`rollout.py`; alone:

    python benchmarks/weight_update.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

from roll_core.config.schema import WorkerConfig
from roll_core.context import WorkerContext
from roll_core.inference import GenerationRequest, SamplingParams
from roll_core.inference.hf import HfInferStrategy
from roll_core.platforms.cpu import CpuPlatform
from roll_core.weights.group import join_group
from roll_core.weights.packing import Bucket, describe, largest_bucket
from roll_core.weights.shared_memory import BUCKET_BYTES, SharedMemory, SharedMemoryReceiver, SharedMemorySender

TIMEOUT_S = 120.0
WANTED = 3.0
PASS_ROWS = (1, 8, 32, 128, 256)
FIRST_ROWS, FIRST_PROMPT, FIRST_TOKENS = 8, 16, 8
"""The generation that follows an update."""


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


@dataclass(frozen=True)
class Pass:
    """All matrices of the model times some rows, with weights as they are and packed: wall seconds."""

    rows: int
    plain: float
    packed: float


@dataclass(frozen=True)
class Figures:
    """The best of each. `update` is until the engine has confirmed, `until_packed` until its last matrix is packed."""

    num_bytes: int
    update: Seconds
    until_packed: Seconds
    copy: Seconds
    first_generation: Seconds
    later_generation: Seconds
    packing: float
    passes: tuple[Pass, ...]

    def lines(self) -> Iterator[str]:
        """The figures in words."""
        copy = self.copy
        yield (
            f"weights of {self.num_bytes / 4e6:.0f}M float32 parameters; a memory copy of as many bytes: "
            f"{1000 * copy.wall:.0f} ms wall, {1000 * copy.cpu:.0f} ms processor"
        )
        for what, seconds in (("update, until confirmed", self.update), ("until all is packed", self.until_packed)):
            yield (
                f"  {what}: {1000 * seconds.wall:.0f} ms wall, {1000 * seconds.cpu:.0f} ms processor with the trainer; "
                f"{seconds.wall / copy.wall:.2f} and {seconds.cpu / copy.cpu:.2f} copies"
                + (f", wanted at most {WANTED:g} by the wall" if seconds is self.update else "")
            )
        yield (
            f"  {FIRST_TOKENS} tokens for {FIRST_ROWS} prompts right after an update: "
            f"{1000 * self.first_generation.wall:.0f} ms wall, once more: {1000 * self.later_generation.wall:.0f} ms"
        )
        for one in self.passes:
            gain = one.plain - one.packed
            paid = f"paid after {self.packing / gain:.0f}" if gain > 0 else "never paid"
            yield (
                f"  one pass, {one.rows:3d} rows: {1000 * one.plain:.1f} ms plain, {1000 * one.packed:.1f} ms packed; "
                f"packing all takes {1000 * self.packing:.0f} ms: {paid}"
            )


def measure(repeats: int) -> Figures:
    """Updates, and copies of as many bytes, which take turns."""
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
        updates, packed, copies, first, later = [], [], [], [], []
        # The first of each touches its memory for the first time.
        for version in range(repeats + 1):
            update, until_packed = _update(engine, ours, group, memory, 2 * version, wait=True)
            packed.append(until_packed)
            copies.append(_copy(source, target))
            updates.append(update)
            _update(engine, ours, group, memory, 2 * version + 1, wait=False)
            first.append(_timed(lambda: _generate(engine)))
            later.append(_timed(lambda: _generate(engine)))
        ours.send(None)
        trainer.join(TIMEOUT_S)
        linears = engine.engine.decoder.packer.linears
        packing = min(_timed(lambda: [linear.pack() for linear in linears]).wall for _ in range(repeats))
        passes = tuple(_pass(linears, rows, repeats) for rows in PASS_ROWS)
        engine.stop()
    best = (_best(found[1:]) for found in (updates, packed, copies, first, later))
    return Figures(num_bytes, *best, packing, passes)


def _pass(linears: Any, rows: int, repeats: int) -> Pass:
    inputs = {linear.weight.shape[1]: torch.randn(rows, linear.weight.shape[1]) for linear in linears}

    def plain() -> None:
        for linear in linears:
            torch.nn.functional.linear(inputs[linear.weight.shape[1]], linear.weight, linear.bias)

    def packed() -> None:
        for linear in linears:
            linear(inputs[linear.weight.shape[1]])

    with torch.inference_mode():
        pairs = [(_timed(plain).wall, _timed(packed).wall) for _ in range(repeats)]
    return Pass(rows, *(min(found) for found in zip(*pairs)))


def _generate(engine: Any) -> None:
    prompt = tuple(range(1, FIRST_PROMPT + 1))
    requests = [
        GenerationRequest(str(row), prompt, SamplingParams(FIRST_TOKENS), seed=row) for row in range(FIRST_ROWS)
    ]
    assert len(list(engine.generate(requests))) == FIRST_ROWS


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


def _update(
    engine: Any, trainer: Connection, group: Any, memory: SharedMemory, version: int, *, wait: bool
) -> tuple[Seconds, Seconds]:
    """Until it is confirmed, and until all is packed, if that is waited for."""
    trainer.send(version)
    receiver = SharedMemoryReceiver(group, memory, trainer.recv())
    began = Seconds(time.perf_counter(), time.process_time())
    assert engine.update_weights(receiver) == receiver.manifest.digest
    confirmed = _since(began)
    if wait:
        engine.engine.decoder.packer.wait()
    packed = _since(began)
    theirs = trainer.recv()
    return Seconds(confirmed.wall, confirmed.cpu + theirs), Seconds(packed.wall, packed.cpu + theirs)


def _since(began: Seconds) -> Seconds:
    return Seconds(time.perf_counter() - began.wall, time.process_time() - began.cpu)


def _timed(action: Callable[[], Any]) -> Seconds:
    began = Seconds(time.perf_counter(), time.process_time())
    action()
    return _since(began)


def _copy(source: torch.Tensor, target: torch.Tensor) -> Seconds:
    return _timed(lambda: target.copy_(source))


def _join(port: int, rank: int) -> Any:
    return join_group(address="127.0.0.1", port=port, rank=rank, world_size=2, backend="gloo", timeout_s=TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(*measure(asked.repeats).lines(), sep="\n")
