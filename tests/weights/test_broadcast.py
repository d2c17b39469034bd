import socket
from multiprocessing import get_context
from typing import Any

import pytest
import torch

from roll_core.errors import WeightSyncError
from roll_core.weights import WeightManifest, digest_of
from roll_core.weights.broadcast import BroadcastReceiver, BroadcastSender
from roll_core.weights.group import join_group
from roll_core.weights.packing import describe

WEIGHTS = {
    "embed": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "norm": torch.tensor([1.5], dtype=torch.bfloat16),
    "scale": torch.tensor(2.5),
    "head": torch.arange(5, dtype=torch.int64),
}


def buckets() -> Any:
    items = list(WEIGHTS.items())
    return iter([items[:2], items[2:]])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def receive(rank: int, port: int, manifest: WeightManifest, results: Any) -> None:
    group = join_group(address="127.0.0.1", port=port, rank=rank, world_size=3, backend="gloo", timeout_s=30)
    receiver = BroadcastReceiver(group, manifest, torch.device("cpu"))
    got = {name: tensor.clone() for bucket in receiver.receive() for name, tensor in bucket}
    results.put((rank, {name: (str(t.dtype), t.tolist()) for name, t in got.items()}))


def test_two_engines_get_every_tensor_bit_for_bit() -> None:
    manifest, port, context = describe(buckets(), version=7), free_port(), get_context("spawn")
    results = context.Queue()
    engines = [context.Process(target=receive, args=(rank, port, manifest, results)) for rank in (1, 2)]
    for engine in engines:
        engine.start()
    group = join_group(address="127.0.0.1", port=port, rank=0, world_size=3, backend="gloo", timeout_s=30)
    BroadcastSender(group).send(buckets(), manifest)
    expected = {name: (str(t.dtype), t.tolist()) for name, t in WEIGHTS.items()}
    assert dict(results.get(timeout=30) for _ in engines) == {1: expected, 2: expected}
    for engine in engines:
        engine.join(10)


def test_a_trainer_that_skips_a_tensor_is_caught_before_anything_is_sent() -> None:
    manifest = describe(buckets(), version=1)
    short = iter([list(WEIGHTS.items())[:1], list(WEIGHTS.items())[2:]])
    with pytest.raises(WeightSyncError, match="missing: norm"):
        BroadcastSender(None).send(short, manifest)


def test_a_trainer_that_stops_early_is_caught() -> None:
    manifest = describe(buckets(), version=1)
    with pytest.raises(WeightSyncError, match="fewer weights"):
        BroadcastSender(None).send(iter([list(WEIGHTS.items())[:2]]), manifest)


def test_the_digest_depends_on_version_names_shapes_and_order() -> None:
    manifest = describe(buckets(), version=1)
    taken = [(name, tuple(tensor.shape)) for name, tensor in WEIGHTS.items()]
    assert digest_of(1, taken) == manifest.digest
    assert digest_of(2, taken) != manifest.digest
    assert digest_of(1, taken[:-1]) != manifest.digest
    assert digest_of(1, taken[::-1]) != manifest.digest
