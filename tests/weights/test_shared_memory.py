import socket
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.errors import WeightSyncError
from roll_core.weights import WeightManifest
from roll_core.weights.group import join_group
from roll_core.weights.packing import describe, largest_bucket
from roll_core.weights.shared_memory import SharedMemory, SharedMemoryReceiver, SharedMemorySender

NUM_BUCKETS = 7


def buckets(version: int) -> list[list[tuple[str, torch.Tensor]]]:
    """Buckets of different sizes and dtypes, whose numbers tell version and bucket apart."""
    return [
        [
            (f"{index}.matrix", torch.full((3 + index, 1000), version * 100 + index, dtype=torch.float32)),
            (f"{index}.scale", torch.tensor(version + index / 8, dtype=torch.bfloat16)),
        ]
        for index in range(NUM_BUCKETS)
    ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def receive(rank: int, port: int, path: Path, manifests: list[WeightManifest], results: Any) -> None:
    group = join_group(address="127.0.0.1", port=port, rank=rank, world_size=3, backend="gloo", timeout_s=30)
    memory = SharedMemory(path, largest_bucket(manifests[0]))
    for manifest in manifests:
        got = {n: t.clone() for bucket in SharedMemoryReceiver(group, memory, manifest).receive() for n, t in bucket}
        sound = all(torch.equal(got[n], t) for bucket in buckets(manifest.version) for n, t in bucket)
        results.put((rank, manifest.version, sound and len(got) == 2 * NUM_BUCKETS))


def test_two_engines_get_every_bucket_of_every_version(tmp_path: Path) -> None:
    manifests = [describe(buckets(version), version) for version in (1, 2)]
    port, context = free_port(), get_context("spawn")
    memory = SharedMemory.create(largest_bucket(manifests[0]), tmp_path)
    results = context.Queue()
    engines = [context.Process(target=receive, args=(rank, port, memory.path, manifests, results)) for rank in (1, 2)]
    for engine in engines:
        engine.start()
    group = join_group(address="127.0.0.1", port=port, rank=0, world_size=3, backend="gloo", timeout_s=30)
    found = set()
    for manifest in manifests:
        SharedMemorySender(group, memory).send(iter(buckets(manifest.version)), manifest)
        found |= {results.get(timeout=30) for _ in engines}
    assert found == {(rank, version, True) for rank in (1, 2) for version in (1, 2)}
    for engine in engines:
        engine.join(10)


def test_no_room_is_said_before_anything_is_written_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        SharedMemory.create(2**60, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_that_skips_a_tensor_is_caught() -> None:
    manifest = describe(buckets(1), 1)
    short = buckets(1)
    del short[2][0]
    with pytest.raises(WeightSyncError, match=r"missing: 2\.matrix"):
        SharedMemorySender(None, None).send(iter(short), manifest)
