"""What a worker's methods do beside calling its strategy."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roll_core.cluster.train_worker import TrainWorker
from roll_core.weights.packing import describe


def test_a_trainer_that_loses_an_engine_goes_on_gathering_with_its_peers() -> None:
    """Else they wait for it in a collective, and what comes next, a checkpoint, waits for them."""
    gathered: list[str] = []

    def weights(_bucket_bytes: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
        for name in ("one", "two", "three"):
            gathered.append(name)
            yield [(name, torch.ones(2))]

    class BrokenGroup:
        def broadcast(self, _tensors: Any, _options: Any) -> Any:
            raise RuntimeError("Connection closed by peer")

    worker = TrainWorker.__new__(TrainWorker)
    worker.strategy = SimpleNamespace(weights=weights)
    worker.weight_group, worker.weight_device, worker.weight_memory = BrokenGroup(), None, None
    manifest = describe(weights(0), version=1)
    gathered.clear()
    with pytest.raises(RuntimeError, match="closed by peer"):
        worker.send_weights(manifest, 0)
    assert gathered == ["one", "two", "three"]
